"""`LoopWork`: tasks that other threads post to an asyncio loop, and long work that runs there in slices.

A burst of tasks wakes the loop once. One turn of the loop runs a bounded number of tasks, so the loop's other work
continues.
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
"""A call on the loop takes a few turns, and each may contain one slice."""

_IDLE_SECONDS = 0.25

_MAX_TASKS = 32

_woken: set[LoopWork] = set()
"""The work of loops that were woken and have not run their tasks yet. Some loops may have been closed since."""

_orphans = DaemonPool("mcp-aio-closed", 1, idle_seconds=_IDLE_SECONDS)


class LoopWork:
    """The work of one loop. Any thread may call `post` and `run_soon`, which never wait.

    The other methods are for the loop's thread. A task must be quick. Once the loop is closed, tasks run on another
    thread. If the loop is closed between its wake-up and its tasks, they run when a task is posted later, to any loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._loop = weakref.ref(loop)
        """Weak, so that objects kept for the next call do not keep a loop."""
        self._tasks: deque[Task] = deque()
        self._woken = False
        """Whether the loop is going to run the tasks. The loop's thread resets it, then looks at the tasks; other
        threads add a task, then look at it. So at least one of the two sees the other."""
        self._slices: deque[Task] = deque()
        """Each slice runs in its own turn. Only the loop's thread uses them."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop()

    @property
    def is_closed(self) -> bool:
        loop = self._loop()
        return loop is None or loop.is_closed()

    # For any thread.

    def is_current(self) -> bool:
        loop = self._loop()
        return loop is not None and asyncio._get_running_loop() is loop

    def post(self, task: Task) -> None:
        """Run `task` soon, in the order of posting. The number of waiting tasks is not limited."""
        self._tasks.append(task)
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._give_up()
        elif not self._woken:
            self._wake(loop)

    def run_soon(self, task: Task) -> None:
        if self.is_current():
            task()
        else:
            self.post(task)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        for work in [*_woken]:
            if work.is_closed:
                work._give_up()
        self._woken = True
        _woken.add(self)
        try:
            loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # The loop was closed meanwhile.
            self._give_up()
        except BaseException:
            # A signal handler has raised it.
            self._woken = False
            raise

    def _run(self) -> None:
        _woken.discard(self)
        self._woken = False
        tasks = self._tasks
        try:
            # Tasks that arrive meanwhile wake the loop again, which does other work first.
            for _ in range(min(len(tasks), _MAX_TASKS)):
                tasks.popleft()()
        finally:
            loop = self._loop()
            if tasks and not self._woken and loop is not None:
                # There were too many tasks for one turn, or a task has raised.
                self._woken = True
                loop.call_soon(self._run)

    def _give_up(self) -> None:
        """Run the tasks of a closed loop on another thread."""
        _woken.discard(self)
        while self._tasks:
            try:
                task = self._tasks.popleft()
            except IndexError:
                # Another thread has taken it.
                return
            _orphans.submit(task, keep=True)

    # For the loop's thread.

    def add_slice(self, task: Task) -> None:
        """Run `task` in a later turn, which runs no other slice. Slices of several servers wait for each other."""
        self._slices.append(task)
        if len(self._slices) == 1:
            self._schedule()

    def run_in_slices(self, steps: Iterator[object]) -> None:
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


_running = threading.local()
"""The attribute `work` is the `LoopWork` of the loop that ran last in this thread."""


def running_loop_work() -> LoopWork:
    """The `LoopWork` of the loop that runs in this thread. Raises RuntimeError if none runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "this needs a running event loop of asyncio: await it inside asyncio.run; in trio, run the same method of "
            "the synchronous client with trio.to_thread.run_sync"
        ) from None
    work: LoopWork | None = getattr(_running, "work", None)
    if work is None or work.loop is not loop:
        work = _running.work = LoopWork(loop)
    return work


def release(future: asyncio.Future[None]) -> None:
    """Let the task that awaits `future` continue. For the loop's thread, or any thread once the loop is closed."""
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)


class WakeUp:
    """Wakes one task of a loop. Any thread may send a wake-up; it is not lost while the task is busy."""

    def __init__(self, work: LoopWork) -> None:
        self._work = work
        self._arrived = False
        """Only the loop's thread uses it and `_waiter`."""
        self._waiter: asyncio.Future[None] | None = None

    def send(self) -> None:
        self._work.post(self.arrive)

    def arrive(self) -> None:
        """Like `send`, on the loop's thread."""
        self._arrived = True
        if self._waiter is not None:
            release(self._waiter)

    async def wait(self) -> None:
        """Wait for the next wake-up; return at once if one came since the last wait."""
        if not self._arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._arrived = False
