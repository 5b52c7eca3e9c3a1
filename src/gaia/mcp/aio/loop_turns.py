"""`LoopTurns`: long work on an event loop, of which each turn of the loop does a short slice."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator

from gaia.runtime.loop_work import SLICE_SECONDS

Task = Callable[[], object]


class LoopTurns:
    """One task in each turn of the loop, in the order of arrival: those of many servers wait for each other.

    For the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._loop = weakref.ref(loop)
        self._tasks: deque[Task] = deque()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop()

    def add(self, task: Task) -> None:
        """Run `task` in a later turn."""
        self._tasks.append(task)
        if len(self._tasks) == 1:
            self._schedule()

    def run(self, steps: Iterator[object]) -> None:
        """Take steps now, as many as fit into a slice, and the others in later turns."""
        until = self.now() + SLICE_SECONDS
        for _ in steps:
            if self.now() >= until:
                self.add(lambda: self.run(steps))
                return

    def _schedule(self) -> None:
        if (loop := self._loop()) is not None:
            loop.call_soon(self._next)

    def _next(self) -> None:
        task = self._tasks.popleft()
        if self._tasks:
            self._schedule()
        task()


class _Running(threading.local):
    turns: LoopTurns | None = None


_running = _Running()


def running_loop_turns() -> LoopTurns:
    """Those of the loop that runs in this thread. Raises RuntimeError if none does."""
    loop = asyncio.get_running_loop()
    turns = _running.turns
    if turns is None or turns.loop is not loop:
        turns = _running.turns = LoopTurns(loop)
    return turns
