"""Where user code runs: listeners, progress callbacks of calls that nobody waits for, completed futures.

A few threads serve any number of lanes. What is posted to one lane runs in order, one at a time; lanes do not wait for
each other unless all threads are busy. No thread of a supervisor or a connection ever runs user code.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable

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
        """Owns `_tasks` and `_scheduled`."""
        self._tasks: deque[Task] = deque()
        self._scheduled = False

    def post(self, task: Task) -> None:
        """Run `task` soon, on a callback thread. Thread-safe, never blocks."""
        with self._lock:
            if len(self._tasks) >= _LANE_TASKS:
                self._tasks.popleft()
                logger.warning("callback_dropped")
            self._tasks.append(task)
            if self._scheduled:
                return
            self._scheduled = True
        self._pool.schedule(self)

    def require_thread(self) -> None:
        """See that something will run what is posted. Raises Overloaded if no thread can be started for it."""
        self._pool.require_thread()

    def run(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._scheduled = False
                    return
                task = self._tasks.popleft()
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - user code may raise anything, and must not end the thread
                logger.error("callback_failed", error=repr(error))


class CallbackPool:
    """The threads behind the lanes; they start when first needed. Thread-safe."""

    def __init__(self, name: str, purpose: str = "callbacks") -> None:
        """`name` and `purpose` are what the threads are called after."""
        self._name = f"mcp-{name}-{purpose}"
        self._lock = threading.Lock()
        """Owns everything below."""
        self._ready: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def lane(self) -> Lane:
        return Lane(self)

    def schedule(self, lane: Lane) -> None:
        with self._lock:
            self._ready.put(lane)
            self._count_living()
            if len(self._threads) < _THREADS:
                try:
                    self._start_thread()
                except RuntimeError as error:
                    # The interpreter is shutting down, or there are no more threads. Those that run see to the lane.
                    logger.warning("callback_thread_not_started", error=str(error), running=len(self._threads))

    def require_thread(self) -> None:
        with self._lock:
            self._count_living()
            if self._threads:
                return
            try:
                self._start_thread()
            except RuntimeError as error:
                raise Overloaded(f"no thread for callbacks: {error}") from error

    def _count_living(self) -> None:
        # Threads do not survive a fork.
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=_run, args=(self._ready,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """End the threads after the tasks that are already posted; does not wait long for user code that never returns.

        What is posted later starts threads again.
        """
        with self._lock:
            threads, self._threads = self._threads, []
            # A queue of its own for each set of threads: one that is stuck in user code still finds its own end.
            ready, self._ready = self._ready, queue.SimpleQueue()
        for _ in threads:
            ready.put(None)
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            # A listener may close the very client that calls it.
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _run(ready: queue.SimpleQueue[Lane | None]) -> None:
    while (lane := ready.get()) is not None:
        lane.run()
