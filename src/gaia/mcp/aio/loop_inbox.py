"""`LoopInbox`: what other threads hand over to an event loop. A burst of tasks wakes up the loop once."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable

from gaia.runtime.threads import DaemonPool

Task = Callable[[], object]

_IDLE_SECONDS = 0.25

_MAX_TASKS = 64
"""That run in one turn of the loop, which has other things to do as well."""

_orphans = DaemonPool("mcp-aio-closed", 1, idle_seconds=_IDLE_SECONDS)
"""Runs the tasks of loops that were closed, such as the ends of spans."""


class LoopInbox:
    """Runs tasks in order on an event loop. Thread-safe; `post` never waits.

    A task is quick, and can run on another thread: that is what happens once the loop is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        """Weak, so that an inbox that is kept for the next call keeps no loop."""
        self._tasks: deque[Task] = deque()
        self._woken = False
        """Whether the loop is going to run the tasks. The loop's thread resets it and then looks at the tasks; other
        threads add a task and then look at it. One of the two sees the other."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop()

    @property
    def is_closed(self) -> bool:
        """Whether the loop is closed, so that no task of it goes on."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    def post(self, task: Task) -> None:
        """Run `task` soon. An inbox has no bounds: what many tasks may come of has a lane before it."""
        self._tasks.append(task)
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._give_up()
        elif not self._woken:
            self._wake(loop)

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
        try:
            # What comes meanwhile wakes the loop again, which does other things first.
            for _ in range(min(len(self._tasks), _MAX_TASKS)):
                self._tasks.popleft()()
        finally:
            loop = self._loop()
            if self._tasks and not self._woken and loop is not None:
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


class _Running(threading.local):
    inbox: LoopInbox | None = None


_running = _Running()


def running_loop_inbox() -> LoopInbox:
    """The inbox of the loop that runs in this thread. Raises RuntimeError if none does."""
    loop = asyncio.get_running_loop()
    inbox = _running.inbox
    if inbox is None or inbox.loop is not loop:
        inbox = _running.inbox = LoopInbox(loop)
    return inbox


def release(future: asyncio.Future[None]) -> None:
    """Have the task go on that awaits `future`; for the loop's thread, or any once the loop is closed."""
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)


class WakeUp:
    """Wakes up one task of a loop. Any thread may send it; one that comes while the task is busy is not lost."""

    def __init__(self, inbox: LoopInbox) -> None:
        self._inbox = inbox
        self._arrived = False
        """The loop's thread owns it, and the next one."""
        self._waiter: asyncio.Future[None] | None = None

    def send(self) -> None:
        self._inbox.post(self.arrive)

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
