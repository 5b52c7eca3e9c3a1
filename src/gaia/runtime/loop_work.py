"""`LoopWork`: what other threads hand over to an asyncio loop, and long work that is done in slices there.

A burst of tasks wakes up the loop once, and one turn of the loop runs a bounded number of them, so that everything else
on the loop goes on in between.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator

from gaia.runtime.threads import DaemonPool

Task = Callable[[], object]

SLICE_SECONDS = 0.0005
"""Of one turn of the loop: a call on the loop takes a few turns, and each of them may have such a slice in it."""

_IDLE_SECONDS = 0.25

_MAX_TASKS = 32
"""That run in one turn of the loop."""

_orphans = DaemonPool("mcp-aio-closed", 1, idle_seconds=_IDLE_SECONDS)
"""Runs the tasks of loops that were closed, such as the ends of spans."""


class LoopWork:
    """The work of one loop. `post` and `run_soon` are for any thread and never wait; the rest is for the loop's own.

    A task is quick, and can run on another thread: that is what happens once the loop is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._loop = weakref.ref(loop)
        """Weak, so that what is kept for the next call keeps no loop."""
        self._tasks: deque[Task] = deque()
        self._woken = False
        """Whether the loop is going to run the tasks. The loop's thread resets it and then looks at the tasks; other
        threads add a task and then look at it. One of the two sees the other."""
        self._slices: deque[Task] = deque()
        """Each runs in a turn of its own. Only the loop's thread uses them."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop()

    @property
    def is_closed(self) -> bool:
        """Whether the loop is closed, so that no task of it goes on."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    # For any thread.

    def is_current(self) -> bool:
        """Whether this is a turn of the loop."""
        loop = self._loop()
        return loop is not None and asyncio._get_running_loop() is loop

    def post(self, task: Task) -> None:
        """Run `task` soon, in the order of posting. There is no bound on the tasks that wait."""
        self._tasks.append(task)
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._give_up()
        elif not self._woken:
            self._wake(loop)

    def run_soon(self, task: Task) -> None:
        """Run `task` now if this is a turn of the loop, and otherwise soon."""
        if self.is_current():
            task()
        else:
            self.post(task)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woken = True
        try:
            loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # It was closed meanwhile.
            self._give_up()
        except BaseException:
            # A signal handler has raised it.
            self._woken = False
            raise

    def _run(self) -> None:
        self._woken = False
        tasks = self._tasks
        try:
            # What comes meanwhile wakes the loop again, which does other things first.
            for _ in range(min(len(tasks), _MAX_TASKS)):
                tasks.popleft()()
        finally:
            loop = self._loop()
            if tasks and not self._woken and loop is not None:
                # There are too many for one turn, or a task has raised.
                self._woken = True
                loop.call_soon(self._run)

    def _give_up(self) -> None:
        """The loop is closed, perhaps with tasks that it was woken up for."""
        while self._tasks:
            try:
                task = self._tasks.popleft()
            except IndexError:
                # Another thread has taken it.
                return
            _orphans.submit(task, keep=True)

    # For the loop's thread.

    def add_slice(self, task: Task) -> None:
        """Run `task` in a later turn, which runs no other slice: those of many servers wait for each other."""
        self._slices.append(task)
        if len(self._slices) == 1:
            self._schedule()

    def run_in_slices(self, steps: Iterator[object]) -> None:
        """Take steps now, as many as fit into a slice, and the others in later turns."""
        until = self.now() + SLICE_SECONDS
        for _ in steps:
            if self.now() >= until:
                self.add_slice(lambda: self.run_in_slices(steps))
                return

    def _schedule(self) -> None:
        if (loop := self._loop()) is not None:
            loop.call_soon(self._next_slice)

    def _next_slice(self) -> None:
        task = self._slices.popleft()
        if self._slices:
            self._schedule()
        task()


class _Running(threading.local):
    work: LoopWork | None = None


_running = _Running()


def running_loop_work() -> LoopWork:
    """That of the loop that runs in this thread. Raises RuntimeError if none does."""
    loop = asyncio.get_running_loop()
    work = _running.work
    if work is None or work.loop is not loop:
        work = _running.work = LoopWork(loop)
    return work


def release(future: asyncio.Future[None]) -> None:
    """Have the task go on that awaits `future`; for the loop's thread, or any once the loop is closed."""
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)


class WakeUp:
    """Wakes up one task of a loop. Any thread may send it; one that comes while the task is busy is not lost."""

    def __init__(self, work: LoopWork) -> None:
        self._work = work
        self._arrived = False
        """The loop's thread owns it, and the next one."""
        self._waiter: asyncio.Future[None] | None = None

    def send(self) -> None:
        self._work.post(self.arrive)

    def arrive(self) -> None:
        """The same for the loop's thread."""
        self._arrived = True
        if self._waiter is not None:
            release(self._waiter)

    async def wait(self) -> None:
        """Wait for the next one; not at all if one came since the last wait."""
        if not self._arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._arrived = False
