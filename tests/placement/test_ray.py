"""The Ray engine, with a real cluster of three nodes on this machine."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig
from tests.placement.conftest import DEMO, are_gone, processes_of
from tests.placement.small_cluster import SmallCluster
from tests.waiting import wait_until

pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

pytestmark = [pytest.mark.process, pytest.mark.slow]

Connect = Callable[..., MCPClient]

PATIENCE = 60.0
"""Seconds in which Ray has noticed anything, and has started another actor, on a machine with other work."""


@pytest.fixture(scope="module")
def whole_cluster() -> Iterator[SmallCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = SmallCluster()
        yield cluster
        cluster.shutdown()


@pytest.fixture(autouse=True)
def cluster(no_leaks: None, whole_cluster: SmallCluster) -> SmallCluster:
    whole_cluster.keep_two()
    return whole_cluster


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Ray's test cluster keeps processes from test to test; what gaia leaves is looked at by tests themselves."""


@pytest.fixture
def entry(cluster: SmallCluster) -> Callable[..., dict[str, Any]]:
    """Make the entry of a placed server: the keywords are keys of its placement."""

    def make(server: dict[str, Any] = DEMO, **placement: Any) -> dict[str, Any]:
        keys = {"engine": "ray", "resources": {"browser": 1}, "address": cluster.address, "lease": 5, **placement}
        return {**server, "placement": keys, "startTimeout": PATIENCE}

    return make


Entry = Callable[..., dict[str, Any]]


def ray_engine(entry: dict[str, Any]) -> Any:
    from gaia.mcp.placement.ray_engine import RayEngine

    found = ServerConfig.from_dict("demo", entry).placement
    assert isinstance(found, Placement)
    return RayEngine(found)


def placement_of(client: MCPClient) -> Any:
    placement = client.status.placement
    assert placement is not None
    return placement


def has_left(client: MCPClient, host: int) -> bool:
    """Whether the client notices that it has lost this host."""
    return wait_until(lambda: client.status.placement is None or client.status.placement.host_pid != host, PATIENCE)


def members() -> list[psutil.Process]:
    """The processes of this one that are in a cluster."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "ray_process.py" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_a_server_is_placed_and_leaves_nothing(connect: Connect, entry: Entry) -> None:
    client = connect(entry())
    processes = processes_of(client)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert placement_of(client).pid == client.status.pid
    engine = ray_engine(entry())
    (listed,) = engine.list()
    assert (listed.name, listed.id, listed.is_shared) == ("fault", placement_of(client).id, False)
    assert f"pid {os.getpid()}" in listed.started_by
    assert engine.look().startswith("3 nodes, Ray ")
    # One process of this one is in the cluster, for all.
    assert len(members()) == 1
    engine.close()
    client.disconnect()
    assert are_gone(processes)
    assert members() == []


def test_a_lost_node_is_left(connect: Connect, entry: Entry, cluster: SmallCluster) -> None:
    client = connect(entry())
    first, host = placement_of(client).node_id, placement_of(client).host_pid
    written = client.submit_tool("sleep", {"seconds": 60})
    assert wait_until(lambda: client.status.in_flight == 1)
    cluster.cut_power(first)
    assert has_left(client, host)
    assert client.call_tool("add", {"a": 1, "b": 1}, timeout=PATIENCE).structured == {"sum": 2}
    assert placement_of(client).node_id != first
    written.cancel()
