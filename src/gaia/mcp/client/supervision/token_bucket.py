"""How often something may happen that a server can bring about at will."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Lets a burst through, and then one each `interval` seconds (a token bucket). For one thread."""

    def __init__(self, burst: int, interval: float) -> None:
        self._burst = burst
        self._interval = interval
        self._spent = 0.0
        """How much of the burst is used up; less as time passes."""
        self._as_of = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next one may happen; 0 if it may now, and then it counts. `now` is a clock's reading."""
        self._spent = max(0.0, self._spent - (now - self._as_of) / self._interval)
        self._as_of = now
        if self._spent > self._burst - 1:
            return (self._spent - (self._burst - 1)) * self._interval
        self._spent += 1
        return 0.0
