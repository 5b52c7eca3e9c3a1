"""Rate limits: `TokenBucket` admits actions at a rate, `EventRate` decides which events are logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_MAX_KEYS = 1_000

_TOLERANCE = 1e-9
"""A fraction of a token. Without it, rounding would make a timer fire a moment too early, again and again."""


class TokenBucket:
    """A token bucket: admits `burst` actions at once, then `per_second`. For one thread. Times are in seconds."""

    __slots__ = ("_as_of", "_burst", "_per_second", "_tokens")

    def __init__(self, burst: float, per_second: float, now: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._tokens = burst
        self._as_of = now

    def delay(self, now: float) -> float:
        """Seconds until an action is admitted; 0 if one is admitted now."""
        self._fill(now)
        return 0.0 if self._tokens >= 1 - _TOLERANCE else (1 - self._tokens) / self._per_second

    def take(self) -> None:
        self._tokens -= 1

    def is_full(self, now: float) -> bool:
        self._fill(now)
        return self._tokens >= self._burst

    def change(self, burst: float, per_second: float, now: float) -> None:
        self._fill(now)
        self._burst, self._per_second, self._tokens = burst, per_second, min(self._tokens, burst)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._as_of) * self._per_second)
        self._as_of = now


class EventRate:
    """Lets one event of each key pass within `seconds`, and counts the others. For one thread."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._passed: dict[Hashable, tuple[float, int]] = {}
        """By key: when an event last passed, and how many were suppressed since. The oldest first."""

    def passes(self, key: Hashable) -> int | None:
        """The number of events suppressed since the last one that passed; None if this one is suppressed."""
        now = self._clock()
        if key not in self._passed and len(self._passed) >= _MAX_KEYS:
            self._forget(now - self._seconds)
            if len(self._passed) >= _MAX_KEYS:
                key = None
        at, suppressed = self._passed.get(key, (None, 0))
        if at is not None and now - at < self._seconds:
            self._passed[key] = (at, suppressed + 1)
            return None
        self._passed.pop(key, None)
        self._passed[key] = (now, 0)
        return suppressed

    def _forget(self, before: float) -> None:
        for key, (at, _) in list(self._passed.items()):
            if at > before:
                return
            del self._passed[key]
