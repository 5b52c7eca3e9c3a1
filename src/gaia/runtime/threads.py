"""Threads on which servers depend, and pools of threads for code that may never return.

`concurrent.futures` does not fit: the interpreter joins its threads at the end, so one stuck task would keep the
process alive. All threads here are daemons, and callers wait for them only with a timeout.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gaia.runtime.handover import mark_engine_thread
from gaia.runtime.locks import TimedQueue, WeakObjects, get_within, reentrant_lock, steady_start
from gaia.runtime.log import exception_text, get_logger, traceback_text

logger = get_logger(__name__)

Task = Callable[[], object]

Item = TypeVar("Item")

_IDLE_SECONDS = 10.0

_STEPS = 64
_PAUSE_SECONDS = 50e-6
"""Long enough for a thread that waits for the interpreter to get it."""


def with_pauses(items: Iterable[Item]) -> Iterator[Item]:
    """The items, with a short pause after each 64 of them.

    For a thread that reads a server's output. Without a pause, every other thread waits 5 ms each time it needs the
    interpreter (`sys.getswitchinterval`), for as long as the server writes.
    """
    for number, item in enumerate(items, 1):
        yield item
        if not number % _STEPS:
            time.sleep(_PAUSE_SECONDS)


class EngineThread(threading.Thread):
    """A thread that runs no code of the application: its log events are handed over (`gaia.runtime.log`)."""

    def __init__(
        self, target: Callable[[], object], name: str, on_failure: Callable[[], object] = lambda: None
    ) -> None:
        """If `target` raises, this thread logs the exception and calls `on_failure`."""
        super().__init__(name=name, daemon=True)
        steady_start(self)
        self._body = target
        self._on_failure = on_failure

    def run(self) -> None:
        mark_engine_thread()
        try:
            self._body()
        except BaseException as error:  # noqa: BLE001 - a mistake of ours, or code of the application where none is expected
            text, trace = exception_text(error), traceback_text(error)
            logger.error("thread_failed", thread=self.name, error=text, exception=trace)
            self._on_failure()


class PoolExhausted(RuntimeError):
    """A task was not accepted: too many tasks wait, or no thread runs and the system starts none."""


class DaemonPool:
    """Runs tasks on up to `max_threads` daemon threads called ``<name>-<n>``. Thread-safe.

    The pool starts a thread when a task finds none idle. The thread that was busy last gets the next task. A forked
    child starts its own threads, without the waiting tasks of its parent.
    """

    def __init__(
        self,
        name: str,
        max_threads: int,
        *,
        max_waiting: int | None = None,
        idle_seconds: float = _IDLE_SECONDS,
        is_engine: bool = False,
    ) -> None:
        """At most `max_waiting` tasks wait for a thread; None sets no limit.

        A thread ends after `idle_seconds` without a task. With `is_engine`, the threads run no code of the application,
        such as log handlers, because servers or their callers depend on the tasks.
        """
        self._name = name
        self._max_threads = max_threads
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self._is_engine = is_engine
        self._after_fork()
        _pools.add(self)

    def _after_fork(self) -> None:
        self._lock = reentrant_lock()
        """Owns everything below, and the threads' own attributes."""
        self._threads: set[_PoolThread] = set()
        """All threads that have not ended, including those that take no further task."""
        self._idle: list[_PoolThread] = []
        self._waiting: deque[Task] = deque()
        self._closed = False

    def submit(self, task: Task, *, keep: bool = False) -> bool:
        """Run `task` as soon as a thread is free; False if the pool is closed. Never blocks.

        An exception of `task` is logged. Raises `PoolExhausted`, and does not run `task`, if too many tasks wait, or if
        no thread runs and none can be started. With `keep`, a task without a thread waits until one can be started.
        """
        with self._lock:
            if self._closed:
                return False
            while self._idle:
                thread = self._idle[-1]
                taken = thread.first is None
                if taken:
                    thread.first = task
                # The thread counts as idle until the end, so that a signal handler's exception at any line loses no
                # thread.
                thread.inbox.put(None)
                with contextlib.suppress(ValueError):
                    self._idle.remove(thread)
                if taken:
                    return True
            # A new thread takes it from the queue, because tasks that were kept without a thread come first.
            self._waiting.append(task)
            error: RuntimeError | None = None
            if sum(not thread.ending for thread in self._threads) < self._max_threads:
                try:
                    self._start_thread()
                    return True
                except RuntimeError as refused:
                    error = refused
            running = len(self._threads)
            full = self._max_waiting is not None and len(self._waiting) > self._max_waiting
            if full or (error is not None and not running and not keep):
                self._waiting.pop()
                raise PoolExhausted(str(error or f"{self._name}: too many tasks wait for a thread")) from error
        if error is not None:
            logger.warning("thread_not_started", pool=self._name, error=str(error), running=running)
        return True

    def drain(self, timeout: float) -> bool:
        """End the threads after the waiting tasks; False if one still runs after `timeout` seconds.

        Later tasks start threads again, even if one is stuck in an earlier task. A task that calls this does not wait
        for its own thread.
        """
        with self._lock:
            if self._waiting and all(thread.ending for thread in self._threads):
                # These tasks were kept without a thread.
                with contextlib.suppress(RuntimeError):
                    self._start_thread()
            threads = self._end_threads()
        return _join(threads, timeout)

    def close(self, timeout: float = 0.0) -> bool:
        """Drop the waiting tasks, accept no others, and end the threads after their present tasks.

        Waits up to `timeout` seconds; False if a thread still runs then. May be called again, to wait longer.
        """
        with self._lock:
            self._closed = True
            self._waiting.clear()
            threads = self._end_threads()
        return _join(threads, timeout)

    def _start_thread(self) -> None:
        taken = {thread.name for thread in self._threads}
        name = next(name for n in itertools.count(1) if (name := f"{self._name}-{n}") not in taken)
        thread = _PoolThread(self, name)
        try:
            # Before the start, because a signal handler may raise just after it.
            self._threads.add(thread)
            thread.start()
        except BaseException:
            # The system has no thread, or a signal handler has raised: then the thread may run, see `_counts`.
            self._threads.discard(thread)
            raise
        if self._waiting:
            # At once, because a task with a thread must not count as waiting.
            thread.first = self._waiting.popleft()

    def _end_threads(self) -> list[_PoolThread]:
        for thread in self._threads:
            thread.ending = True
        for thread in self._idle:
            thread.inbox.put(None)
        self._idle.clear()
        return list(self._threads)

    def _counts(self, thread: _PoolThread) -> bool:
        """Whether a thread belongs to the pool. One whose start was interrupted does if there is room for it."""
        with self._lock:
            if thread not in self._threads:
                if self._closed or sum(not one.ending for one in self._threads) >= self._max_threads:
                    return False
                self._threads.add(thread)
            return True

    def _run(self, thread: _PoolThread) -> None:
        if not self._counts(thread):
            return
        if self._is_engine:
            mark_engine_thread()
        try:
            while (task := self._next_task(thread)) is not None:
                try:
                    task()
                except BaseException as error:  # noqa: BLE001 - a task may raise anything, and must not end the thread
                    # A log handler may also raise any exception, and runs on this thread.
                    with contextlib.suppress(BaseException):
                        logger.error("task_failed", pool=self._name, error=exception_text(error))
                # Keep no reference to the task while waiting for the next one.
                del task
        finally:
            with self._lock:
                self._threads.discard(thread)

    def _next_task(self, thread: _PoolThread) -> Task | None:
        """Wait for a task. None if the thread has left the pool: it was told to end, or was idle for too long."""
        while True:
            with self._lock:
                if thread in self._idle:
                    self._idle.remove(thread)
                if thread.first is not None:
                    task, thread.first = thread.first, None
                    return task
                if self._waiting:
                    return self._waiting.popleft()
                if thread.ending:
                    self._threads.discard(thread)
                    return None
                self._idle.append(thread)
            try:
                get_within(thread.inbox, self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if thread in self._idle and thread.first is None:
                        self._idle.remove(thread)
                        self._threads.discard(thread)
                        return None


class _PoolThread(threading.Thread):
    def __init__(self, pool: DaemonPool, name: str) -> None:
        super().__init__(target=pool._run, args=(self,), name=name, daemon=True)
        steady_start(self)
        self.inbox: TimedQueue[None] = TimedQueue()
        """Gets an item whenever the thread has to look for a task or its end."""
        self.first: Task | None = None
        """The task for which the thread was started or woken, until it takes the task."""
        self.ending = False
        """Whether it ends as soon as no task waits. An ending thread does not count towards the pool's limit."""


def _join(threads: list[_PoolThread], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    # A thread whose start a signal handler interrupted may have no identity.
    others = [thread for thread in threads if thread is not threading.current_thread() and thread.ident is not None]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in others)


_pools = WeakObjects(DaemonPool._after_fork)
