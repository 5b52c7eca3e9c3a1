"""`IoThread`: one thread per process for all exchanges over HTTP that no caller's thread makes.

It runs while it has users: the channels to servers. Exchanges are coroutines that await the objects of
`gaia.http.waits`. Other blocking work, such as looking up a name, runs on a few helper threads.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from gaia.http.errors import Interrupted, TimedOut
from gaia.http.waits import (
    LATE,
    MAX_SECONDS,
    TURN_SECONDS,
    Deadline,
    Exchange,
    Job,
    Ready,
    Sleep,
    Wait,
    time_of,
)
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import exception_text, get_logger, traceback_text
from gaia.runtime.threads import DaemonPool, EngineThread

logger = get_logger(__name__)

_NAME = "gaia-http"
_MAX_HELPERS = 4
_JOIN_SECONDS = 2.0
_MANY_TIMERS = 64
_EVENTS = {select.POLLIN: selectors.EVENT_READ, select.POLLOUT: selectors.EVENT_WRITE}


class Task:
    """One exchange on the I/O thread. Only `interrupt` is for other threads."""

    __slots__ = ("_io", "exchange", "is_interrupted", "number", "on_end", "wait")

    def __init__(self, io: IoThread, exchange: Exchange[object], on_end: Callable[[Task], object]) -> None:
        self._io = io
        self.on_end = on_end
        self.exchange = exchange
        self.wait: Wait | None = None
        """The current wait; None while the exchange runs, and before it has begun."""
        self.number = 0
        """The number of the wait, by which a timer knows whether it belongs to this wait."""
        self.is_interrupted = False

    def interrupt(self) -> None:
        """Raise `Interrupted` in the current wait of the exchange, or else in its next one."""
        self._io.post(partial(self._io.interrupt, self))


class Signal:
    """Any thread sets it once; exchanges and threads wait for it."""

    def __init__(self, io: IoThread) -> None:
        self._io = io
        self.latch = Latch()
        self._waits: list[tuple[Task, Wait]] = []
        """Only the I/O thread uses it."""

    def set(self) -> None:
        self.latch.open()
        self._io.post(self._wake)

    def within(self, seconds: float) -> Wait:
        """A wait that gives whether the signal was set within `seconds`."""
        return _SignalWait(self, time.monotonic() + seconds)

    def add(self, task: Task, wait: Wait) -> None:
        """Let `task` wait for the signal. On the I/O thread."""
        self._waits.append((task, wait))
        if self.latch.is_open:
            self._wake()

    def _wake(self) -> None:
        waits, self._waits = self._waits, []
        for task, wait in waits:
            if task.wait is wait:
                self._io.resume(task, True)


class _SignalWait(Wait):
    __slots__ = ("signal",)

    def __init__(self, signal: Signal, until: float) -> None:
        super().__init__(until)
        self.signal = signal

    def here(self) -> bool:
        at = time_of(self.deadline)
        return self.signal.latch.wait(0.0 if at is None else at - time.monotonic())


class IoThread:
    """`post` is for any thread, `join` for its users; everything else is for the I/O thread."""

    def __init__(self) -> None:
        self.users: dict[object, Callable[[], object]] = {}
        """Each user with the function to call if the thread fails. `_lock` of this module owns this and `is_over`."""
        self.is_over = False
        self._inbox: deque[Callable[[], object]] = deque()
        self._asleep = False
        self._selector = selectors.DefaultSelector()
        self._wakes, self._waker = socket.socketpair()
        self._wakes.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._ready: deque[tuple[Task, Any, BaseException | None]] = deque()
        self._timers: list[tuple[float, int, Task, int]] = []
        """When to look at a task's deadline; the numbers are the entry's own and the wait's."""
        self._count = itertools.count()
        self._tasks: set[Task] = set()
        self._jobs: dict[object, list[tuple[Task, Job]]] = {}
        """By the key of a job: the tasks that wait for it."""
        self._pool = DaemonPool(f"{_NAME}-helper", _MAX_HELPERS, is_engine=True)
        self.thread = EngineThread(self._run, _NAME, self._failed)

    def post(self, action: Callable[[], object]) -> None:
        """Call `action` on the thread, after all actions posted before. Never waits."""
        # This thread appends, then looks at `_asleep`; the I/O thread sets `_asleep`, then looks at the inbox. So at
        # least one of the two sees the other.
        try:
            self._inbox.append(action)
        finally:
            # A signal handler may raise an exception after any call, so none comes before the I/O thread is woken up.
            if self._asleep:
                self._asleep = False
                try:  # noqa: SIM105
                    self._waker.send(b"\0")
                except OSError:
                    pass

    def call_later(self, seconds: float, action: Callable[[], object]) -> None:
        async def later() -> None:
            await Sleep(time.monotonic() + seconds)
            action()

        self.begin(Task(self, later(), lambda _: None))

    def resume(self, task: Task, value: object = None, error: BaseException | None = None) -> None:
        wait = task.wait
        if wait is None:
            return
        task.wait = None
        task.number += 1
        if isinstance(wait, Ready):
            # A socket that was closed meanwhile is not registered any more.
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(wait.socket)
        self._ready.append((task, value, error))

    def interrupt(self, task: Task) -> None:
        if task.wait is not None:
            self.resume(task, error=Interrupted())
        elif not any(one is task and isinstance(error, Interrupted) for one, _, error in self._ready):
            task.is_interrupted = True

    def begin(self, task: Task, first: Wait | None = None) -> None:
        """Drive a task. If a caller's thread has driven the exchange before, it now waits for `first`."""
        self._tasks.add(task)
        if first is None:
            self._ready.append((task, None, None))
        else:
            self._wait(task, first)

    def _step(self, task: Task, value: object, error: BaseException | None) -> None:
        try:
            wait = task.exchange.send(value) if error is None else task.exchange.throw(error)
        except BaseException as failure:  # noqa: BLE001 - its end, or a mistake of ours, which must not end the thread
            self._tasks.discard(task)
            if not isinstance(failure, (StopIteration, Interrupted)):
                text, trace = exception_text(failure), traceback_text(failure)
                logger.error("http_exchange_failed", error=text, exception=trace)
            task.on_end(task)
            # A timer may keep the task.
            task.number += 1
            task.on_end = lambda _: None
        else:
            self._wait(task, wait)

    def _wait(self, task: Task, wait: Wait) -> None:
        task.wait = wait
        if task.is_interrupted:
            task.is_interrupted = False
            self.resume(task, error=Interrupted())
            return
        try:
            if isinstance(wait, Ready):
                self._selector.register(wait.socket, _EVENTS[wait.events], task)
            elif isinstance(wait, _SignalWait):
                wait.signal.add(task, wait)
            elif isinstance(wait, Job):
                self._begin_job(task, wait)
            elif wait.deadline is None:
                self.resume(task)
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            # A closed socket, or a system that starts no thread.
            self.resume(task, error=error if isinstance(error, (OSError, RuntimeError)) else OSError(str(error)))
        if task.wait is wait:
            self._watch(task, wait.deadline)

    def _begin_job(self, task: Task, job: Job) -> None:
        key = id(job) if job.key is None else job.key
        waiting = self._jobs.setdefault(key, [])
        waiting.append((task, job))
        if len(waiting) > 1:
            return

        def do() -> None:
            value, failure = None, None
            try:
                value = job.function()
            except BaseException as error:  # noqa: BLE001 - the exchange's to handle
                failure = error
            self.post(lambda: done(value, failure))

        def done(value: object, failure: BaseException | None) -> None:
            for waits, one in self._jobs.pop(key):
                if waits.wait is one:
                    self.resume(waits, value, failure)

        try:
            (job.pool or self._pool).submit(do)
        except RuntimeError:
            del self._jobs[key]
            raise

    def _watch(self, task: Task, deadline: Deadline) -> None:
        at = time_of(deadline)
        if at is None:
            return
        if len(self._timers) > 2 * len(self._tasks) + _MANY_TIMERS:
            self._timers = [entry for entry in self._timers if entry[2].number == entry[3]]
            heapq.heapify(self._timers)
        heapq.heappush(self._timers, (at, next(self._count), task, task.number))

    def _end_late(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, task, number = heapq.heappop(self._timers)
            if task.number != number or task.wait is None:
                continue
            at = time_of(task.wait.deadline)
            if at is None or at > now:
                # The deadline was moved.
                self._watch(task, at)
            elif isinstance(task.wait, Job):
                self.resume(task, error=TimedOut(LATE))
            else:
                self.resume(task, False)

    def _run(self) -> None:
        while not self.is_over or self._tasks:
            self._select()
            while self._inbox:
                self._inbox.popleft()()
            self._end_late()
            if self.is_over:
                for task in self._tasks:
                    self.resume(task, error=Interrupted())
            # Exchanges that become ready meanwhile run in the next round.
            for _ in range(len(self._ready)):
                self._step(*self._ready.popleft())
        self.close()

    def _select(self) -> None:
        timeout: float | None = None
        if self._ready:
            # These exchanges gave other threads a turn; the sleep lets those have the interpreter.
            time.sleep(TURN_SECONDS)
            timeout = 0.0
        elif self._timers:
            timeout = min(max(0.0, self._timers[0][0] - time.monotonic()), MAX_SECONDS)
        self._asleep = True
        if self._inbox or self.is_over:
            timeout = 0.0
        events = self._selector.select(timeout)
        self._asleep = False
        for key, _ in events:
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wakes.recv(4096)
            else:
                self.resume(key.data, True)

    def join(self, seconds: float) -> bool:
        """After the last release: wait for the end of all threads. False if one still runs after `seconds`."""
        self.post(lambda: None)
        until = time.monotonic() + seconds
        if threading.current_thread() is not self.thread:
            self.thread.join(seconds)
        return self._pool.close(max(0.0, until - time.monotonic())) and not self.thread.is_alive()

    def close(self) -> None:
        """Close the descriptors: at the end of the thread, and in a forked child, which has copies of them."""
        self._selector.close()
        self._wakes.close()
        self._waker.close()

    def _failed(self) -> None:
        with _lock:
            self.is_over = True
            _current.discard(self)
            users = list(self.users.values())
        self.close()
        for tell in users:
            tell()


_lock = reentrant_lock()
_current: set[IoThread] = set()


def hold_io_thread(user: object, on_failure: Callable[[], object]) -> IoThread:
    """The I/O thread of this process. It calls `on_failure` if it fails. Raises RuntimeError if none can start."""
    with _lock:
        found = next(iter(_current), None) or IoThread()
        if found.thread.ident is None:
            try:
                found.thread.start()
            except RuntimeError:
                found.close()
                raise
        found.users[user] = on_failure
        _current.add(found)
        return found


def release_io_thread(user: object, io: IoThread, seconds: float = _JOIN_SECONDS) -> bool:
    """Release it. The last user waits for the end of the thread; False if it still runs after `seconds`."""
    with _lock:
        io.users.pop(user, None)
        io.is_over = io.is_over or not io.users
        if not io.is_over:
            return True
        _current.discard(io)
    return io.join(seconds)


def _after_fork() -> None:
    for io in _current:
        io.close()
    _current.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
