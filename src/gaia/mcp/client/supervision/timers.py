"""The deadlines of a supervisor: a few named ones, and those of calls and requests that no thread waits for."""

from __future__ import annotations

import enum
import heapq
import itertools
from typing import Protocol

__all__ = ["Timer", "Timers", "Waiting"]


class Timer(enum.Enum):
    BACKOFF = enum.auto()
    """Start the server again."""

    COOLDOWN = enum.auto()
    """Try once more after the circuit opened."""

    HEALTH = enum.auto()
    """See whether an idle server is still alive."""

    LISTING = enum.auto()
    """List the tools of a server that says all the time that they have changed."""


class Waiting(Protocol):
    """Something that ends, at its deadline at the latest: a call, a question."""

    @property
    def deadline(self) -> float: ...

    @property
    def ended(self) -> bool: ...


_FEW = 64


class Timers:
    """Readings of the clock by name. Belongs to the supervisor's thread.

    What has ended is let go soon, however far its deadline is: at most as much of it is kept as of what has not ended,
    and a few.
    """

    def __init__(self) -> None:
        self._named: dict[Timer, float] = {}
        self._waiting: list[tuple[float, int, Waiting]] = []
        self._order = itertools.count()
        self._tidy_at = _FEW
        """How much waiting is worth a look what of it has ended."""

    def set(self, timer: Timer, deadline: float) -> None:
        self._named[timer] = deadline

    def cancel(self, *timers: Timer) -> None:
        for timer in timers:
            self._named.pop(timer, None)

    def watch(self, waiting: Waiting) -> None:
        heapq.heappush(self._waiting, (waiting.deadline, next(self._order), waiting))
        if len(self._waiting) > self._tidy_at:
            self._waiting = [entry for entry in self._waiting if not entry[2].ended]
            heapq.heapify(self._waiting)
            self._tidy_at = max(_FEW, 2 * len(self._waiting))

    def next_deadline(self) -> float | None:
        while self._waiting and self._waiting[0][2].ended:
            heapq.heappop(self._waiting)
        deadlines = [*self._named.values(), *(entry[0] for entry in self._waiting[:1])]
        return min(deadlines, default=None)

    def due(self, now: float) -> tuple[list[Timer], list[Waiting]]:
        """Take what has come due."""
        timers = [timer for timer, deadline in self._named.items() if deadline <= now]
        self.cancel(*timers)
        late = []
        while self._waiting and self._waiting[0][0] <= now:
            waiting = heapq.heappop(self._waiting)[2]
            if waiting.ended:
                continue
            if waiting.deadline > now:
                # It was set back meanwhile.
                self.watch(waiting)
            else:
                late.append(waiting)
        return timers, late
