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


class Timers:
    """Readings of the clock by name. Belongs to the worker thread."""

    def __init__(self) -> None:
        self._named: dict[Timer, float] = {}
        self._calls: list[tuple[float, int, Call]] = []
        self._order = itertools.count()

    def set(self, timer: Timer, deadline: float) -> None:
        self._named[timer] = deadline

    def cancel(self, *timers: Timer) -> None:
        for timer in timers:
            self._named.pop(timer, None)

    def watch(self, call: Call) -> None:
        heapq.heappush(self._calls, (call.deadline, next(self._order), call))

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
