"""A Ray cluster on this machine, whose nodes are processes that can be killed."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil

OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""Of one node: the least that Ray allows, and a little."""


class SmallCluster:
    """A head, and nodes that have one processor and one "browser" each."""

    def __init__(self, nodes: int = 2) -> None:
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
        for _ in range(nodes):
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
        """Kill Ray's own processes on a node; those that they have started end by themselves."""
        node = next(node for node in self.nodes if node.node_id == node_id)
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def cut_power(self, node_id: str) -> float:
        """Kill all processes of a node at once, as a machine that loses its power. Returns when that was done."""
        for process in self.processes_of(node_id):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        done = time.monotonic()
        self.lose_node(node_id)
        return done

    def kill_head(self) -> None:
        """Kill the process that knows the cluster (Ray's GCS)."""
        psutil.Process(self._cluster.head_node.all_processes["gcs_server"][0].process.pid).kill()

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
