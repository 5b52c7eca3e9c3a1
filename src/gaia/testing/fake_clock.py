"""`FakeClock`: a clock whose time passes only when a test says so."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from gaia.runtime.locks import TimedQueue, get_within

_PATIENCE = 120.0
"""Real seconds after which a wait for another thread fails the test."""
_TICK = 0.002
"""Real seconds between two checks of the fake time, because nothing else wakes a thread that waits for a lock."""
_SETTLED = 0.02
"""Real seconds without a change after which the threads count as settled."""


class FakeClock:
    """A clock for tests: `advance` lets seconds pass, and `advance_until` as many as a condition needs.

    A `FakeServer` and its clients use it. A thread that waits for an answer, a deadline or a backoff waits until
    another thread lets the time pass. All methods may be called from any thread.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._changed = threading.Condition()
        """Guards the attributes below. Notified when a thread begins or ends to wait, or to hold the time."""
        self._waiters: dict[object, float | None] = {}
        self._holds = 0

    # For the code under test.

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return self._now

    def acquire(self, lock: Lock, deadline: float | None) -> bool:
        """Take `lock`, waiting until `deadline` (None: no limit). False if it was not free by then."""
        with self._waiting_until(deadline):
            while not lock.acquire(True, _TICK):
                if self._is_past(deadline):
                    return lock.acquire(False)
            return True

    def get(self, source: TimedQueue[Any], deadline: float | None) -> Any:
        """The next item of `source`. Raises `queue.Empty` at `deadline` (None: no limit)."""
        with self._waiting_until(deadline):
            while True:
                try:
                    return get_within(source, _TICK)
                except queue.Empty:
                    if self._is_past(deadline):
                        return source.get_nowait()

    # For tests.

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Threads whose deadlines have passed are awake afterwards.

        Raises ValueError if `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"seconds: time does not run backwards, got {seconds!r}")
        with self._changed:
            self._now += seconds
            due = {waiter for waiter, deadline in self._waiters.items() if self._is_past(deadline)}
            if not self._changed.wait_for(lambda: due.isdisjoint(self._waiters), _PATIENCE):
                raise AssertionError("a thread whose deadline has passed was not woken")

    def advance_until(self, condition: Callable[[], bool], limit: float = 3600.0) -> None:
        """Let time pass until `condition` holds, from one deadline of a thread to the next.

        Time passes only when no thread has begun or ended to wait for 20 real milliseconds, and no thread holds the
        time (`hold`). Raises AssertionError if the condition does not hold after `limit` seconds. In a coroutine,
        ``await asyncio.to_thread(clock.advance_until, task.done)`` leaves the event loop to the task.
        """
        started, end = time.monotonic(), self._now + limit
        while not condition():
            if time.monotonic() - started > _PATIENCE:
                waiting = f"the condition does not hold, and threads wait until {self.deadlines()}"
                raise AssertionError(waiting + blocked_loop("clock.advance_until"))
            with self._changed:
                deadlines = self._moments()
                if self._changed.wait(_SETTLED) or self._holds or not deadlines:
                    continue
                if min(deadlines) > end:
                    late = f"the condition does not hold after {limit} seconds"
                    raise AssertionError(late + blocked_loop("clock.advance_until"))
                self.advance(max(0.0, min(deadlines) - self._now))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stop `advance_until` from letting time pass in this block, because the thread works instead of waiting."""
        with self._changed:
            self._holds += 1
        try:
            yield
        finally:
            with self._changed:
                self._holds -= 1
                self._changed.notify_all()

    def wait_for_waiter(self, deadline: float | None) -> None:
        """Wait until a thread waits until `deadline`; None: without a deadline."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: any(_same(deadline, one) for one in self._waiters.values()), _PATIENCE
            ):
                raise AssertionError(f"no thread waits until {deadline}, but until {list(self._waiters.values())}")

    def advance_to_next_deadline(self) -> float:
        """Wait until a thread waits for a deadline, and let time pass up to it. Returns the seconds that passed."""
        started = time.monotonic()
        with self._changed:
            while not (deadlines := self._moments()):
                if not self._changed.wait(_PATIENCE - (time.monotonic() - started)):
                    raise AssertionError("no thread waits for a moment to come")
            seconds = max(0.0, min(deadlines) - self._now)
            self.advance(seconds)
        return seconds

    def deadlines(self) -> list[float | None]:
        """The deadlines of all waiting threads; None stands for a wait without a deadline."""
        with self._changed:
            return list(self._waiters.values())

    def _moments(self) -> list[float]:
        return [deadline for deadline in self._waiters.values() if deadline is not None]

    def _is_past(self, deadline: float | None) -> bool:
        return deadline is not None and deadline <= self._now

    @contextmanager
    def _waiting_until(self, deadline: float | None) -> Iterator[None]:
        waiter = object()
        with self._changed:
            self._waiters[waiter] = deadline
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                del self._waiters[waiter]
                self._changed.notify_all()


def _same(one: float | None, other: float | None) -> bool:
    # Sums of the same floats in another order differ in the last digits.
    return one is other if one is None or other is None else abs(one - other) < 1e-6


def blocked_loop(method: str) -> str:
    """The end of an error message if the caller blocks an event loop of this thread; else empty."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return f"; the event loop of this thread could not run meanwhile: await asyncio.to_thread({method}, …)"
