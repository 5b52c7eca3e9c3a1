"""Clocks. Durations and readings are seconds of a monotonic clock.

All code that waits or measures uses a `Clock`, so that a test can let an hour pass without sleeping.
"""

from __future__ import annotations

from threading import TIMEOUT_MAX, Lock
from time import monotonic
from typing import Any, Protocol, TypeGuard

from gaia.runtime.locks import TimedQueue, get_within

_MAX_SECONDS = 365 * 24 * 3600
"""A year. Much longer waits overflow the clocks of operating systems."""


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def acquire(self, lock: Lock, deadline: float | None) -> bool:
        """Take `lock`, waiting until `deadline` (None: for ever). False if it was not free by then."""

    def get(self, source: TimedQueue[Any], deadline: float | None) -> Any:
        """The next item of `source`; raises `queue.Empty` at `deadline` (None: waits for ever)."""


class SystemClock:
    monotonic = staticmethod(monotonic)

    def acquire(self, lock: Lock, deadline: float | None) -> bool:
        if deadline is None:
            return lock.acquire()
        remaining = deadline - monotonic()
        if remaining <= 0:
            return lock.acquire(False)
        return lock.acquire(True, min(TIMEOUT_MAX, remaining))

    def get(self, source: TimedQueue[Any], deadline: float | None) -> Any:
        if deadline is None:
            return source.get()
        return get_within(source, deadline - monotonic())


def require_seconds(name: str, value: object) -> None:
    """Raise ValueError, naming `name`, unless the application's `value` is a duration: above 0, at most a year."""
    if not (is_number(value) and 0 < value <= _MAX_SECONDS):
        raise ValueError(f"{name}: must be a number of seconds above 0 (and at most a year), got {value!r}")


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
