"""The deadlines that a worker watches: a few named ones, and those of calls that no thread waits for."""

from __future__ import annotations

import enum
import heapq
import itertools

from gaia.mcp.client.rpc.call import Call

__all__ = ["Timer", "Timers"]


class Timer(enum.Enum):
    BACKOFF = enum.auto()
    """Start the server again."""

    COOLDOWN = enum.auto()
    """Try once more after the circuit opened."""

    HEALTH = enum.auto()
    """See whether an idle server is still alive."""


_FEW_CALLS = 64


class Timers:
    """Readings of the clock by name. Belongs to the worker thread.

    Calls that have ended are let go soon, however far their deadlines are: at most as many of them are kept as calls
    that have not ended, and a few.
    """

    def __init__(self) -> None:
        self._named: dict[Timer, float] = {}
        self._calls: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._tidy_at = _FEW_CALLS
        """How many watched calls are worth a look which of them have ended."""

    def set(self, timer: Timer, deadline: float) -> None:
        self._named[timer] = deadline

    def cancel(self, *timers: Timer) -> None:
        for timer in timers:
            self._named.pop(timer, None)

    def watch(self, call: Call) -> None:
        heapq.heappush(self._calls, (call.deadline, next(self._order), call))
        if len(self._calls) > self._tidy_at:
            self._calls = [entry for entry in self._calls if not entry[2].ended]
            heapq.heapify(self._calls)
            self._tidy_at = max(_FEW_CALLS, 2 * len(self._calls))

    def next_deadline(self) -> float | None:
        while self._calls and self._calls[0][2].ended:
            heapq.heappop(self._calls)
        deadlines = [*self._named.values(), *(entry[0] for entry in self._calls[:1])]
        return min(deadlines, default=None)

    def due(self, now: float) -> tuple[list[Timer], list[Call]]:
        """Take what has come due."""
        timers = [timer for timer, deadline in self._named.items() if deadline <= now]
        self.cancel(*timers)
        calls = []
        while self._calls and self._calls[0][0] <= now:
            calls.append(heapq.heappop(self._calls)[2])
        return timers, [call for call in calls if not call.ended]
