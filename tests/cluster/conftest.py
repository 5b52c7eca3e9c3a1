"""A Ray cluster of three nodes on this machine, and a driver that has joined it."""

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""Of one node: the least that Ray allows, and a little."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("process")
            item.add_marker("slow")


class SmallCluster:
    """Three nodes: the head, and two that have one processor and one "browser" each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": OBJECT_STORE_BYTES,
                "include_dashboard": False,
                # Soon enough for tests; Ray's own figures wait for half a minute.
                "_system_config": {
                    "health_check_period_ms": 500,
                    "health_check_timeout_ms": 1000,
                    "health_check_failure_threshold": 4,
                },
            },
        )
        self.address: str = self._cluster.address
        self.nodes: list[Any] = []
        self.add_node()
        self.add_node()
        self._cluster.wait_for_nodes()

    def add_node(self, **resources: float) -> Any:
        """Add a node with these resources, or with a browser."""
        node = self._cluster.add_node(
            num_cpus=1, object_store_memory=OBJECT_STORE_BYTES, resources=resources or {"browser": 1}
        )
        self.nodes.append(node)
        return node

    def lose_node(self, node_id: str) -> None:
        """Kill all processes of Ray's on a node at once, as a machine that loses its power."""
        node = next(node for node in self.nodes if node.node_id == node_id)
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def processes_of(self, node_id: str) -> list[psutil.Process]:
        """All processes of a node: Ray's, its actors, and what these have started."""
        node = next(node for node in self.nodes if node.node_id == node_id)
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        return [raylet, *raylet.children(recursive=True)]

    def keep_two(self) -> None:
        """Replace what tests have lost."""
        while len(self.nodes) < 2:
            self.add_node()

    def shutdown(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def whole_cluster() -> Iterator[SmallCluster]:
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = SmallCluster()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        cluster.shutdown()


@pytest.fixture
def cluster(whole_cluster: SmallCluster) -> SmallCluster:
    whole_cluster.keep_two()
    return whole_cluster


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Ray keeps threads, sockets and processes from test to test; what gaia leaves is looked at by tests themselves."""


@pytest.fixture
def placed(cluster: SmallCluster, demo_server: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Make the entry of a placed server: the keywords are keys of its placement."""

    def entry(server: dict[str, Any] | None = None, **placement: Any) -> dict[str, Any]:
        # The nodes start servers with the environment of a test that began long ago.
        return {**(server or demo_server), "placement": {"resources": {"browser": 1}, **placement}}

    return entry
