"""`Deadlines`: a thread that ends late calls and questions for which no thread waits. Supervisors may be too busy."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import operator
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.locks import TimedQueue, WeakObjects, get_within, reentrant_lock
from gaia.runtime.log import exception_text, get_logger, traceback_text
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_MIN_TIDY = 256
_MAX_ARRIVED = 256
"""The number of new handles at which the thread takes them over; most of their calls have ended by then."""

_MOMENT_SECONDS = 0.1
"""Seconds until the next attempt after the clock has raised."""

_JOIN_SECONDS = 1.0


class Expiring(Protocol):
    watched: DeadlineHandle | None
    """Set by `Deadlines`, released by the thread that ends the call."""

    @property
    def deadline(self) -> float:
        """A reading of the clock. It may change; if it comes nearer, `watch` must be called again."""

    @property
    def ended(self) -> bool: ...


class DeadlineHandle:
    """A deadline without a strong hold on its call, which may end long before and be large."""

    __slots__ = ("due", "expire", "waiting")

    def __init__(self, waiting: Expiring, expire: Callable[[Any], object]) -> None:
        self.waiting: Expiring | None = waiting
        self.expire = expire
        self.due = math.inf
        """When the thread looks at the call next. Only the thread changes it."""

    def release(self) -> None:
        self.waiting = None


class Deadlines:
    """Ends calls at their deadlines, on a thread that runs while it has users or deadlines. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = reentrant_lock()
        """Owns the two attributes below."""
        self._users: set[object] = set()
        self._thread: EngineThread | None = None
        self._arrived: deque[DeadlineHandle] = deque()
        """New handles. Other threads append them; the deadlines' thread takes them before it next waits."""
        self._wake: TimedQueue[None] = TimedQueue()
        self._wakes_at = -math.inf
        """Until when the thread waits unless it is woken; in the past while it does not wait."""
        # Only the deadlines' thread uses the attributes below.
        self._heap: list[tuple[float, int, DeadlineHandle]] = []
        self._order = itertools.count()
        self._tidy_at = _MIN_TIDY
        """The size of the heap at which the thread drops the entries of ended calls."""

    def hold(self, user: object) -> None:
        """Keep the thread running until `let_go`. Raises RuntimeError if the system starts no thread."""
        with self._lock:
            self._users.add(user)
            try:
                self._start()
            except BaseException:
                self._users.discard(user)
                raise

    def let_go(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
        self._wake.put(None)

    def wait_idle(self) -> None:
        """Wait up to a second for the end of the thread, if it has no user any more."""
        with self._lock:
            thread = None if self._users else self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def watch(self, waiting: Expiring, expire: Callable[[Any], object] = operator.methodcaller("expire")) -> None:
        """Call ``expire(waiting)`` at its deadline, unless it has ended. Call this again if the deadline comes nearer.

        `expire` runs on the deadlines' thread: it must be quick and must not run code of the application.
        """
        deadline = waiting.deadline
        if deadline == math.inf:
            return
        handle = waiting.watched
        if handle is None:
            handle = waiting.watched = DeadlineHandle(waiting, expire)
        # The thread that ends the call marks it ended, then looks at the handle. This thread sets the handle, then
        # looks whether the call has ended. So at least one of the two sees the other.
        if waiting.ended:
            handle.release()
            return
        # In the same way, the deadlines' thread sets `_wakes_at`, then looks at `_arrived`; this thread appends, then
        # looks at `_wakes_at`. Most calls end before their deadlines, so most cause no thread switch.
        self._arrived.append(handle)
        if deadline < self._wakes_at or len(self._arrived) >= _MAX_ARRIVED:
            self._wake.put(None)
        if self._thread is None:
            with self._lock:
                self._start()

    def _start(self) -> None:
        """The caller holds the lock."""
        if self._thread is None:
            self._thread = EngineThread(self._run, "mcp-deadlines", self._no_thread)
            try:
                self._thread.start()
            except BaseException:
                # A signal handler may have raised, before or after the system has started the thread.
                self._no_thread()
                raise

    def _no_thread(self) -> None:
        self._thread = None

    # The thread.

    def _run(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread():
                # Its start was interrupted, and there may be another thread by now.
                return
        while True:
            try:
                self._take_arrived()
                self._end_late(self._clock.monotonic())
                deadline = self._next_deadline()
                if deadline is None and self._is_over():
                    return
                self._wait(deadline)
            except BaseException as error:  # noqa: BLE001 - no other code would end late calls
                self._log_failure(error)
                self._pause()

    def _pause(self) -> None:
        with contextlib.suppress(queue.Empty):
            get_within(self._wake, _MOMENT_SECONDS)

    def _take_arrived(self) -> None:
        while self._arrived:
            handle = self._arrived.popleft()
            waiting = handle.waiting
            if waiting is not None and waiting.deadline < handle.due:
                self._push(handle, waiting.deadline)
        if len(self._heap) > self._tidy_at:
            self._heap = [entry for entry in self._heap if self._is_open(entry)]
            heapq.heapify(self._heap)
            self._tidy_at = max(_MIN_TIDY, 2 * len(self._heap))

    def _push(self, handle: DeadlineHandle, deadline: float) -> None:
        handle.due = deadline
        heapq.heappush(self._heap, (deadline, next(self._order), handle))

    @staticmethod
    def _is_open(entry: tuple[float, int, DeadlineHandle]) -> bool:
        """Whether the entry's call still runs. If the call's deadline came nearer, a later entry is the valid one."""
        deadline, _, handle = entry
        waiting = handle.waiting
        return waiting is not None and handle.due == deadline and not waiting.ended

    def _next_deadline(self) -> float | None:
        while self._heap and not self._is_open(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _end_late(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            handle = entry[2]
            waiting = handle.waiting
            if waiting is None or not self._is_open(entry):
                continue
            if waiting.deadline > now:
                # Progress has postponed the deadline.
                self._push(handle, waiting.deadline)
                continue
            try:
                handle.expire(waiting)
            except BaseException as error:  # noqa: BLE001 - the others must end all the same
                self._log_failure(error)
            handle.release()
            # Keep no reference to the call while waiting for the next deadline.
            del waiting

    def _wait(self, deadline: float | None) -> None:
        try:
            self._wakes_at = math.inf if deadline is None else deadline
            if not self._arrived:
                with contextlib.suppress(queue.Empty):
                    self._clock.get(self._wake, deadline)
        finally:
            self._wakes_at = -math.inf

    def _is_over(self) -> bool:
        """Whether the thread ends because it has nothing to do. A later handle starts another thread."""
        with self._lock:
            if self._users:
                return False
            thread, self._thread = self._thread, None
            # The thread that appended this handle has seen this thread, so it starts no other.
            if self._arrived:
                self._thread = thread
            return self._thread is None

    @staticmethod
    def _log_failure(error: BaseException) -> None:
        logger.error("deadline_failed", error=exception_text(error), exception=traceback_text(error))


_all = WeakObjects(Deadlines._begin)

_of_system = Deadlines(SystemClock())
_of_clocks: weakref.WeakValueDictionary[int, Deadlines] = weakref.WeakValueDictionary()
"""Deadlines of other clocks, by the clock's identity. Each keeps its clock alive."""


def deadlines_of(clock: Clock) -> Deadlines:
    if type(clock) is SystemClock:
        return _of_system
    found = _of_clocks.get(id(clock))
    if found is None:
        found = _of_clocks[id(clock)] = Deadlines(clock)
    return found
