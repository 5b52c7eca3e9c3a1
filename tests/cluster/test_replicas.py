"""Replicas of a server on a Ray cluster: over which nodes they are, and what becomes of calls when one is lost."""

from collections.abc import Callable
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.supervision.events import ServerState
from tests.cluster.small_cluster import SmallCluster
from tests.waiting import wait_until

pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

Connect = Callable[..., MCPClient]
Entry = Callable[..., dict[str, Any]]

CLUSTER_PATIENCE = 60.0
"""Seconds in which Ray has noticed anything, and has started another actor, on a machine with other work."""

REPLICAS = {"stateless": True, "strategy": "spread", "resources": {}}


@pytest.fixture(autouse=True)
def _cluster(cluster: SmallCluster) -> None:
    pass


def ready(client: MCPClient) -> list[Any]:
    """The replicas that are ready."""
    return [one for one in client.status.replicas if one.state is ServerState.READY]


def wait_ready(client: MCPClient, count: int) -> bool:
    return wait_until(lambda: len(ready(client)) == count, CLUSTER_PATIENCE)


def test_a_lost_node_is_left_out_until_its_replica_is_back(
    connect: Connect, placed: Entry, cluster: SmallCluster
) -> None:
    client = connect({**placed(replicas=3, **REPLICAS), "timeout": CLUSTER_PATIENCE})
    assert wait_ready(client, 3)
    nodes = [one.placement.node_id for one in client.status.replicas]
    assert len(set(nodes)) == 3, "each is on a node of its own"
    own_nodes = {node.node_id for node in cluster.nodes}
    lost = next(node for node in nodes if node in own_nodes)
    cluster.lose_node(lost)
    assert wait_until(lambda: lost not in {one.placement.node_id for one in ready(client)}, CLUSTER_PATIENCE)
    assert client.is_connected()
    results = [client.submit_tool("add", {"a": 1, "b": 2}) for _ in range(8)]
    assert not any(result.result(CLUSTER_PATIENCE).is_error for result in results)
    assert wait_ready(client, 3)
    assert client.status.restarts == 0


def test_a_handle_stays_with_its_replica_to_its_end(connect: Connect, placed: Entry) -> None:
    client = connect({**placed(replicas=2, **REPLICAS), "timeout": CLUSTER_PATIENCE})
    assert wait_ready(client, 2)
    with client.pinned() as handle, client.pinned() as other:
        assert [handle.call_tool("counter")["structuredContent"]["value"] for _ in range(3)] == [1, 2, 3]
        assert handle.placement is not None
        psutil.Process(handle.placement.host_pid).kill()
        assert wait_until(lambda: handle.is_lost, CLUSTER_PATIENCE)
        assert handle.call_tool("counter")["error_type"] == "session_lost"
        assert other.call_tool("counter")["structuredContent"] == {"value": 1}
    assert wait_ready(client, 2)


def test_replicas_come_with_the_calls(connect: Connect, placed: Entry) -> None:
    server = {**placed(**{**REPLICAS, "replicas": {"min": 1, "max": 2, "targetInFlight": 1}})}
    client = connect({**server, "timeout": CLUSTER_PATIENCE})
    futures = [client.submit_tool("sleep", {"seconds": CLUSTER_PATIENCE}) for _ in range(2)]
    assert wait_ready(client, 2)
    for future in futures:
        future.cancel()
