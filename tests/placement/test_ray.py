"""The Ray engine, with a real cluster of three nodes on this machine."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import StartFailed
from gaia.mcp.placement.engine import Launch
from tests.placement.conftest import DEMO, are_gone, has_ended, processes_of
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
        # Ray's own figure is a minute.
        patch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = SmallCluster()
        yield cluster
        cluster.shutdown()


@pytest.fixture(autouse=True)
def cluster(no_leaks: None, whole_cluster: SmallCluster) -> SmallCluster:
    whole_cluster.keep_two()
    return whole_cluster


@pytest.fixture(scope="module")
def stays_joined(whole_cluster: SmallCluster) -> Iterator[None]:
    """Between tests, this program stays in the cluster, because joining takes seconds."""
    engine = ray_engine({**DEMO, "placement": {"engine": "ray", "address": whole_cluster.address}})
    engine.look()
    yield
    engine.close()


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

LAUNCH = Launch(name="demo", entry=dict(DEMO), token="t" * 32, lease=60)


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


@pytest.mark.usefixtures("stays_joined")
def test_a_lost_node_is_left(connect: Connect, entry: Entry, cluster: SmallCluster) -> None:
    client = connect(entry())
    first, host = placement_of(client).node_id, placement_of(client).host_pid
    under_way = client.submit_tool("sleep", {"seconds": 60})
    assert wait_until(lambda: client.status.in_flight == 1)
    cluster.cut_power(first)
    assert has_left(client, host)
    assert client.call_tool("add", {"a": 1, "b": 1}, timeout=PATIENCE).structured == {"sum": 2}
    assert placement_of(client).node_id != first
    under_way.cancel()


def test_nothing_of_a_killed_actor_is_left_when_another_starts(connect: Connect, entry: Entry) -> None:
    client = connect(entry())
    processes = processes_of(client)
    actor = processes[0].parent()
    assert actor is not None
    actor.kill()
    assert has_left(client, processes[0].pid)
    assert client.call_tool("add", {"a": 1, "b": 1}, timeout=PATIENCE).structured == {"sum": 2}
    assert all(map(has_ended, processes))


def test_a_host_that_does_not_answer_is_not_said_to_have_ended(entry: Entry) -> None:
    told: list[str] = []
    engine = ray_engine(entry())
    placed = engine.start(LAUNCH, told.append)
    try:
        host = psutil.Process(placed.wait(PATIENCE).pid)
        actor = host.parent()
        assert actor is not None
        actor.suspend()
        try:
            assert not placed.stop(0.0)
            assert not placed.stop(0.0)
            assert placed.why_ended() is None
            assert host.is_running()
        finally:
            actor.resume()
        assert wait_until(lambda: placed.stop(1.0), PATIENCE)
        assert are_gone([host])
        assert told == []
    finally:
        engine.close()


PROGRAM = """
import json, sys
from gaia.mcp.client import MCPClient
client = MCPClient.from_config("demo", json.loads(sys.argv[1]))
assert client.connect(), client.last_error
print(client.status.placement.host_pid, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def program(entry: dict[str, Any]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another program that has placed a server, and the process of its host."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(entry)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        yield started, int(started.stdout.readline())
        started.kill()


def test_a_killed_program_leaves_nothing(entry: Entry) -> None:
    with program(entry()) as (started, pid):
        host = psutil.Process(pid)
        processes = [host, *host.children(recursive=True)]
        started.kill()
        assert are_gone(processes)


def test_programs_share_a_server_until_the_last_has_left(connect: Connect, entry: Entry) -> None:
    shared = entry(lifetime="detached", name="team")
    with program(shared) as (started, pid):
        client = connect(shared, "demo")
        processes = processes_of(client)
        assert processes[0].pid == pid
        engine = ray_engine(shared)
        assert [(host.name, host.is_shared) for host in engine.list()] == [("team", True)]
        engine.close()
        started.kill()
        started.wait()
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert placement_of(client).host_pid == pid
    client.disconnect()
    assert are_gone(processes)


def test_a_resource_that_no_node_has_is_named(entry: Entry) -> None:
    client = MCPClient.from_config("demo", {**entry(resources={"telescope": 1}), "startTimeout": 2})
    try:
        assert not client.connect()
        assert "it needs 1 of the resource 'telescope', and none of the 3 nodes has any" in str(client.last_error)
    finally:
        client.disconnect()


def test_a_start_that_is_given_up_leaves_no_actor(entry: Entry) -> None:
    engine = ray_engine(entry(resources={"telescope": 1}))
    try:
        placed = engine.start(LAUNCH, lambda _: None)
        # The actor is made at this moment.
        with pytest.raises(StartFailed, match="it needs 1 of the resource 'telescope'"):
            placed.wait(0.0)
        assert engine.list() == []
    finally:
        engine.close()


def test_a_start_whose_time_joining_has_used_up_says_so(entry: Entry) -> None:
    engine = ray_engine(entry(resources={}))
    try:
        with pytest.raises(StartFailed, match="startTimeout is for joining the cluster too"):
            engine.start(LAUNCH, lambda _: None).wait(0.0)
    finally:
        engine.close()


def test_a_node_can_be_named(connect: Connect, entry: Entry, cluster: SmallCluster) -> None:
    node = cluster.nodes[-1].node_id
    assert placement_of(connect(entry(resources={}, node=node))).node_id == node
    client = MCPClient.from_config("demo", entry(node="nowhere"))
    assert not client.connect()
    assert "the Ray cluster has no node 'nowhere'" in str(client.last_error)
    client.disconnect()


def test_an_address_without_a_cluster_is_told(entry: Entry) -> None:
    client = MCPClient.from_config("demo", entry(address="127.0.0.1:1"))
    assert not client.connect()
    assert "the Ray cluster at 127.0.0.1:1 cannot be joined" in str(client.last_error)
    client.disconnect()


def test_the_death_of_the_head_ends_no_program(connect: Connect, entry: Entry, cluster: SmallCluster) -> None:
    """The last test: there is no cluster after it."""
    placed, here = connect(entry()), connect(DEMO, "here")
    processes, (member,) = processes_of(placed), members()
    cluster.kill_head()
    # Calls do not go through Ray.
    assert placed.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    # Ray's client ends its own process, and the nodes end theirs.
    assert wait_until(lambda: has_ended(member), PATIENCE)
    assert here.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    began = time.monotonic()
    placed.disconnect()
    assert time.monotonic() - began < PATIENCE / 4
    assert are_gone(processes)
    assert not placed.connect()
    assert "cannot be joined" in str(placed.last_error)
