"""The threads for user code: listeners, progress callbacks of calls that no thread waits for, completed futures.

A few threads serve any number of lanes. What is posted to one lane runs in order, one at a time; lanes do not wait for
each other unless all threads are busy. No thread of a supervisor or a connection ever runs user code.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from gaia.daemon_pool import DaemonPool, PoolExhausted
from gaia.log import get_logger
from gaia.mcp.errors import Overloaded

__all__ = ["CallbackPool", "Lane"]

logger = get_logger(__name__)

Task = Callable[[], object]

_THREADS = 4
_LANE_TASKS = 10_000
_JOIN_SECONDS = 2.0


class Lane:
    """Runs its tasks in order. A lane that falls far behind loses its oldest tasks, and says so in the log."""

    def __init__(self, pool: CallbackPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        """Owns `_tasks` and `_scheduled_in`."""
        self._tasks: deque[Task] = deque()
        self._scheduled_in: int | None = None
        """The process in which a thread runs the tasks, or will: a forked child has none of its parent's threads."""

    def post(self, task: Task) -> None:
        """Run `task` soon, on a callback thread. Thread-safe, never blocks."""
        process = os.getpid()
        with self._lock:
            if self._scheduled_in not in (None, process):
                # They were posted before a fork, and the parent runs them.
                self._tasks.clear()
            if len(self._tasks) >= _LANE_TASKS:
                self._tasks.popleft()
                logger.warning("callback_dropped")
            self._tasks.append(task)
            if self._scheduled_in == process:
                return
            self._scheduled_in = process
        self._pool.schedule(self)

    def require_thread(self) -> None:
        """Make sure that a thread will run what is posted. Raises Overloaded if none can be started."""
        self._pool.require_thread()

    def run(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._scheduled_in = None
                    return
                task = self._tasks.popleft()
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - user code may raise anything, and must not end the thread
                logger.error("callback_failed", error=repr(error))


class CallbackPool:
    """The threads behind the lanes; they start when first needed, and stay until `close`. Thread-safe."""

    def __init__(self, name: str, purpose: str = "callbacks") -> None:
        """`name` and `purpose` are parts of the threads' names."""
        # Threads that are idle stay: a call that has found one by `require_thread` may take long.
        self._threads = DaemonPool(f"mcp-{name}-{purpose}", _THREADS, idle_seconds=None)

    def lane(self) -> Lane:
        return Lane(self)

    def schedule(self, lane: Lane) -> None:
        # Kept also if no thread can be started, because the interpreter is shutting down or there are too many: the
        # threads that run, or the next one that can be started, take it.
        self._threads.submit(lane.run, keep=True)

    def require_thread(self) -> None:
        try:
            self._threads.ensure_thread()
        except PoolExhausted as error:
            raise Overloaded(f"no thread for callbacks: {error}") from error

    def close(self) -> None:
        """End the threads after the tasks that are already posted; does not wait long for user code that never returns.

        What is posted later starts threads again.
        """
        self._threads.drain(_JOIN_SECONDS)
