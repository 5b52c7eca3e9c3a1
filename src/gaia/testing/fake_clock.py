"""A clock that stands still until a test lets time pass."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gaia.locks import TimedQueue
from gaia.mcp.client.rpc.clock import Lock

__all__ = ["FakeClock"]

_PATIENCE = 120.0
"""Real seconds until a wait for another thread fails the test. It says that the test hangs, and nothing about speed."""
_TICK = 0.002
"""Real seconds between two looks at the fake time: nothing else wakes a thread that waits for a lock."""


class FakeClock:
    """Implements `gaia.mcp.client.rpc.clock.Clock`; time passes only in `advance`.

    ``clock.wait_for_waiter(clock.monotonic() + 30)`` and then ``clock.advance(30)`` is how a test lets a thread wait
    for half a minute. All methods may be called from any thread.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._changed = threading.Condition()
        """Owns `_now` and `_waiters`; notified when a thread begins or ends to wait."""
        self._waiters: dict[object, float | None] = {}

    # What the code under test calls.

    def monotonic(self) -> float:
        return self._now

    def acquire(self, lock: Lock, deadline: float | None) -> bool:
        with self._waiting_until(deadline):
            while not lock.acquire(True, _TICK):
                if self._is_past(deadline):
                    return lock.acquire(False)
            return True

    def get(self, source: TimedQueue[Any], deadline: float | None) -> Any:
        with self._waiting_until(deadline):
            while True:
                try:
                    return source.get(timeout=_TICK)
                except queue.Empty:
                    if self._is_past(deadline):
                        return source.get_nowait()

    # What a test calls.

    def advance(self, seconds: float) -> None:
        """Let time pass. Whoever waited until then has been woken when this returns."""
        with self._changed:
            self._now += seconds
            due = {
                waiter for waiter, deadline in self._waiters.items() if deadline is not None and self._is_past(deadline)
            }
            if not self._changed.wait_for(lambda: due.isdisjoint(self._waiters), _PATIENCE):
                raise AssertionError("a thread whose deadline has passed was not woken")

    def wait_for_waiter(self, deadline: float | None) -> None:
        """Return when a thread waits until `deadline`; None: when one waits without a deadline."""

        def is_awaited() -> bool:
            return any(_same(deadline, awaited) for awaited in self._waiters.values())

        with self._changed:
            if not self._changed.wait_for(is_awaited, _PATIENCE):
                raise AssertionError(f"no thread waits until {deadline}, but until {list(self._waiters.values())}")

    def advance_to_next_deadline(self) -> float:
        """Wait until a thread waits for a moment to come, and let it come. Returns how many seconds passed."""
        started = time.monotonic()
        with self._changed:
            while not (deadlines := [deadline for deadline in self._waiters.values() if deadline is not None]):
                if not self._changed.wait(_PATIENCE - (time.monotonic() - started)):
                    raise AssertionError("no thread waits for a moment to come")
            seconds = max(0.0, min(deadlines) - self._now)
            self.advance(seconds)
        return seconds

    def deadlines(self) -> list[float | None]:
        """What threads wait for at this moment; None is a wait without a deadline."""
        with self._changed:
            return list(self._waiters.values())

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
    # Sums of floats in a different order differ in the last digits.
    return one is other if one is None or other is None else abs(one - other) < 1e-6
