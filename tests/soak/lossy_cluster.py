"""A Ray cluster whose nodes are lost, with a bare actor: what Ray alone takes to recover."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from tests.placement.small_cluster import SmallCluster

COMES_BACK = 60.0
"""Seconds after which the actor counts as not coming back."""

ROOM = 8
"""Servers that a node has room for: all of them."""


class Bare:
    """What Ray alone does: an actor without anything in it."""

    def where(self) -> tuple[int, str]:
        return os.getpid(), ray.get_runtime_context().get_node_id()


class LossyCluster:
    """A context manager. Two nodes, each with room for all."""

    def __init__(self) -> None:
        self._cluster = SmallCluster(nodes=0)
        self.address = self._cluster.address
        self.replace()
        self.replace()
        ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        options: Any = {"num_cpus": 0, "resources": {"browser": 1}, "max_restarts": -1, "max_task_retries": 0}
        self._actor: Any = ray.remote(**options)(Bare).remote()
        _, self._node = ray.get(self._actor.where.remote())

    def __enter__(self) -> LossyCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    def lose(self, node: str) -> tuple[float, Callable[[], float] | None]:
        """Kill all processes of a node at once.

        Returns when that was done, and, if the bare actor was there, what waits for it and returns the seconds.
        """
        had_actor = node == self._node
        lost = self._cluster.cut_power(node)
        answered: list[float] = []
        waiting = threading.Thread(target=lambda: answered.append(self._answer()))
        waiting.start()

        def wait() -> float:
            waiting.join()
            if not answered:
                raise RuntimeError("the bare actor did not come back")
            return answered[0] - lost

        return lost, wait if had_actor else None

    def replace(self) -> None:
        """Add a node."""
        self._cluster.add_node(browser=ROOM)

    def _answer(self) -> float:
        """The time of the actor's next answer. A call that fails is made again."""
        deadline = time.monotonic() + COMES_BACK
        while time.monotonic() < deadline:
            with suppress(RayError):
                _, self._node = ray.get(self._actor.where.remote(), timeout=COMES_BACK)
                return time.monotonic()
            time.sleep(0.005)
        raise RuntimeError("the bare actor did not come back")
