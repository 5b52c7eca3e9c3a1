"""`EventRate`: bounds how often events that clients can cause are logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_MOST = 1_000
"""Keys that are told apart; further ones share one place."""


class EventRate:
    """Lets one event of each key pass in so many seconds, and counts the others. For one event loop."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._passed: dict[Hashable, tuple[float, int]] = {}
        """When one has passed, and how many have not since then; the oldest first."""

    def passes(self, key: Hashable) -> int | None:
        """How many were left out since the last one that passed; None if this one is left out, too."""
        now = self._clock()
        if key not in self._passed and len(self._passed) >= _MOST:
            self._forget(now - self._seconds)
            if len(self._passed) >= _MOST:
                key = None
        at, left_out = self._passed.get(key, (None, 0))
        if at is not None and now - at < self._seconds:
            self._passed[key] = (at, left_out + 1)
            return None
        self._passed.pop(key, None)
        self._passed[key] = (now, 0)
        return left_out

    def _forget(self, before: float) -> None:
        for key, (at, _) in list(self._passed.items()):
            if at > before:
                return
            del self._passed[key]
