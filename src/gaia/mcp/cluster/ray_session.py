"""The stay of this program in a Ray cluster, which the application may end at any time with ``ray.shutdown()``.

Ray then forgets what is under way, and never says so. What is sent later has it start a cluster of its own here.
"""

from __future__ import annotations

import itertools
from typing import Any

import ray

from gaia.mcp.cluster.cluster_loop import ClusterLoop, cluster_loop
from gaia.mcp.cluster.link import ClusterLeft, OnAnswer

_SECONDS_BETWEEN_LOOKS = 1.0


class RaySession:
    """Knows who waits for answers from the cluster. Thread-safe."""

    def __init__(self, loop: ClusterLoop = cluster_loop) -> None:
        """For the cluster that the program is in. The thread of `loop` looks whether it still is."""
        self._loop = loop
        self._identity = identity()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, OnAnswer] = {}
        """By the numbers of what was sent. Each of its operations is one of a dict, so no lock is needed."""
        self._is_watched = False
        """Whether the thread of the loop looks again. Others set it, and the thread clears it before it looks."""

    @property
    def is_over(self) -> bool:
        """Whether the program has left the cluster, and is in no other one."""
        return not ray.is_initialized()

    @property
    def is_present(self) -> bool:
        """Whether the program is in this cluster."""
        return not self.is_over and identity() == self._identity

    def expect(self, on_answer: OnAnswer) -> int:
        """Something is about to be sent. Returns its number."""
        number = next(self._numbers)
        self._waiting[number] = on_answer
        if not self._is_watched:
            self._is_watched = True
            self._loop.alarm(_SECONDS_BETWEEN_LOOKS, self._look)
        return number

    def answered(self, number: int, answer: Any, failure: BaseException | None) -> None:
        """What was sent has been answered, or cannot be sent; on any thread."""
        on_answer = self._waiting.pop(number, None)
        if on_answer is not None:
            on_answer(answer, failure)

    def _look(self) -> None:
        """Tell those that wait if there will be no answer."""
        self._is_watched = False
        numbers = list(self._waiting)
        if not numbers:
            return
        if self.is_present:
            self._is_watched = True
            self._loop.alarm(_SECONDS_BETWEEN_LOOKS, self._look)
            return
        for number in numbers:
            self.answered(number, None, ClusterLeft())


def identity() -> tuple[str, str]:
    """What no two stays in clusters have in common."""
    context: Any = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


_session: RaySession | None = None


def present_session() -> RaySession:
    """That of the cluster that the program is in. For one thread at a time."""
    global _session  # noqa: PLW0603 - as Ray, which is in one cluster at a time
    if _session is None or not _session.is_present:
        _session = RaySession()
    return _session
