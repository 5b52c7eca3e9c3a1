"""Figures about the calls of one server."""

from __future__ import annotations

import math
import threading
from collections import deque

__all__ = ["CallStatistics"]

_WINDOW = 512
"""How many of the last calls the percentiles speak of."""


class CallStatistics:
    """Counts calls and errors, and remembers the last latencies. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Owns everything below."""
        self._calls = 0
        self._errors = 0
        self._latencies: deque[float] = deque(maxlen=_WINDOW)

    def record(self, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self._calls += 1
            self._errors += failed
            self._latencies.append(seconds)

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def errors(self) -> int:
        return self._errors

    def percentiles(self, *ranks: float) -> list[float | None]:
        """The latencies, in seconds, that the given shares (0 to 1) of the last calls did not exceed."""
        with self._lock:
            ordered = sorted(self._latencies)
        if not ordered:
            return [None for _ in ranks]
        # Nearest rank: always a latency that was really measured.
        return [ordered[max(0, math.ceil(rank * len(ordered)) - 1)] for rank in ranks]
