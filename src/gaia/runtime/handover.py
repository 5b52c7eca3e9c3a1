"""`Handover`: a daemon thread for code of the application that an engine thread has to call, such as log handlers.

Servers and their callers depend on engine threads (supervisors, readers, writers), which must neither wait for code of
the application nor fail because of it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from gaia.runtime.locks import Latch, TimedQueue, WeakObjects, get_within, reentrant_lock, steady_start

T = TypeVar("T")

Task = Callable[[], object]

_IDLE_SECONDS = 0.25

_MAX_TASKS = 10_000
_MAX_SIZE = 16 * 1024 * 1024

_thread = threading.local()


def mark_engine_thread(is_engine: bool = True) -> None:
    """Forbid code of the application on the current thread from now on; with False, permit it again."""
    _thread.is_engine = is_engine


def on_engine_thread() -> bool:
    return getattr(_thread, "is_engine", False)


class Handover:
    """Runs tasks in order on a daemon thread that exists while it is needed. Thread-safe; `post` never waits.

    At most 10,000 tasks wait, of at most 16 MiB in all; further tasks are dropped and counted. A forked child starts
    without waiting tasks. If the system starts no thread, as at the end of the interpreter, the posting thread runs the
    task at once.
    """

    def __init__(
        self, name: str, on_error: Callable[[BaseException], object], on_dropped: Callable[[int], object]
    ) -> None:
        """`on_error` receives the exception of a task; `on_dropped` receives the number of dropped tasks.

        `on_dropped` runs once the queue is empty. Both run on the thread `name`; their exceptions are ignored.
        """
        self._name = name
        self._on_error = on_error
        self._on_dropped = on_dropped
        self.after_fork()
        _all.add(self)

    def after_fork(self) -> None:
        self._lock = reentrant_lock()
        """Owns everything below. Reentrant: a finalizer or signal handler that interrupts the holder may log too."""
        self._tasks: TimedQueue[_Entry] = TimedQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0
        self._size = 0
        self._dropped = 0
        self._done = 0
        self._stuck_at: int | None = None
        """The value of `_done` when a caller gave up waiting. Until another task is done, no caller waits again."""

    def post(self, task: Task, size: int = 0) -> None:
        """Run `task` soon, after all tasks posted before. `size` is its approximate memory in bytes."""
        with self._lock:
            if self._waiting >= _MAX_TASKS or self._size + size > _MAX_SIZE:
                self._dropped += 1
                return
            if self._has_thread():
                self._put(_Entry(task, size))
                return
        self._attempt(task)

    def run(self, task: Callable[[], T], seconds: float) -> T | None:
        """The return value of `task`; None if it is unknown after `seconds`. The task runs all the same.

        Raises the exception of `task`. While an earlier task is stuck, this returns None at once, and `task` does not
        run.
        """
        outcome: TimedQueue[tuple[T | None, BaseException | None]] = TimedQueue()

        def report() -> None:
            try:
                outcome.put((task(), None))
            except BaseException as error:  # noqa: BLE001 - the application's code may raise anything
                outcome.put((None, error))

        with self._lock:
            if self._stuck_at == self._done:
                return None
        self.post(report)
        try:
            result, error = get_within(outcome, seconds)
        except queue.Empty:
            self._gave_up()
            return None
        if error is not None:
            raise error
        return result

    def flush(self, seconds: float) -> bool:
        """Wait until all tasks posted before have run; False if not after `seconds`, or on the thread itself."""
        reached = Latch()
        with self._lock:
            if self._thread is None:
                return True
            if self._thread is threading.current_thread() or self._stuck_at == self._done:
                return False
            # The bounds do not apply to this task.
            self._put(_Entry(reached.open, may_end=True))
        if reached.wait(seconds):
            return True
        self._gave_up()
        return False

    def _put(self, entry: _Entry) -> None:
        self._waiting += 1
        self._size += entry.size
        self._tasks.put(entry)

    def _gave_up(self) -> None:
        with self._lock:
            self._stuck_at = self._done

    def _has_thread(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                steady_start(self._thread)
                self._thread.start()
            except BaseException as error:
                # If a signal handler has raised it, the thread may run; it ends then.
                self._thread = None
                if isinstance(error, RuntimeError):
                    return False
                raise
        return True

    def _run(self) -> None:
        while self._thread is threading.current_thread() and self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run the next task. False if the thread has to end; a later task then starts another one."""
        try:
            entry = get_within(self._tasks, _IDLE_SECONDS)
        except queue.Empty:
            return not self._ends()
        self._attempt(entry.task)
        dropped = 0
        with self._lock:
            self._waiting -= 1
            self._size -= entry.size
            self._done += 1
            if not self._waiting:
                dropped, self._dropped = self._dropped, 0
        if dropped:
            self._report(lambda: self._on_dropped(dropped))
        return not (entry.may_end and self._ends())

    def _ends(self) -> bool:
        with self._lock:
            if self._tasks.empty() and self._thread is threading.current_thread():
                # An exception of a signal handler may have come between the counting of a task and its entry.
                self._waiting = self._size = 0
                self._thread = None
            return self._thread is not threading.current_thread()

    def _attempt(self, task: Task) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - the application's code may raise anything, SystemExit too
            failure = error
            self._report(lambda: self._on_error(failure))

    @staticmethod
    def _report(report: Task) -> None:
        # The callbacks may run code of the application.
        with contextlib.suppress(BaseException):
            report()


class _Entry(NamedTuple):
    task: Task
    size: int = 0
    may_end: bool = False
    """Whether the thread ends after this task, if no other task waits."""


_all = WeakObjects(Handover.after_fork)
