"""`Circuit`: a circuit breaker for a tool that keeps failing."""

from __future__ import annotations

from collections import deque

from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.gateway.access.settings import CircuitSettings


class CircuitOpen(ServerUnavailable):
    """The gateway refuses calls of a tool that has failed too often. Its server may be ready."""


class Circuit:
    """Closed while calls succeed, open after too many failures, then tried with one call. For one event loop.

    Times are readings of one monotonic clock, in seconds.
    """

    __slots__ = ("_failures", "_open_until", "_settings", "_tried", "name")

    def __init__(self, name: str, settings: CircuitSettings) -> None:
        self.name = name
        """The tool's name, for messages."""
        self._settings = settings
        self._failures: deque[float] = deque(maxlen=settings.failures)
        """Times of the latest failures since the last success."""
        self._open_until: float | None = None
        """The time from which a trial may be made; None while the circuit is closed."""
        self._tried = False
        """Whether a trial call is in flight."""

    @property
    def settings(self) -> CircuitSettings:
        return self._settings

    @property
    def is_closed(self) -> bool:
        return self._open_until is None

    def retry_in(self, now: float) -> float | None:
        """Seconds until a call is let through; None if one may pass now."""
        if self._open_until is None or (now >= self._open_until and not self._tried):
            return None
        return max(self._open_until - now, 1.0)

    def enter(self) -> bool:
        """Record that a call is let through, right after `retry_in` permitted it. Returns whether it is the trial."""
        self._tried = self._open_until is not None
        return self._tried

    def note(self, failed: bool | None, *, trial: bool, now: float) -> None:
        """Record the end of a call that was let through. `failed` is None if the call says nothing about the tool."""
        if trial:
            self._tried = False
            if failed:
                self._open_until = now + self._settings.cooldown
            elif failed is False:
                self._open_until = None
                self._failures.clear()
        elif failed is False:
            self._failures.clear()
        elif failed and self._open_until is None:
            self._failures.append(now)
            if len(self._failures) == self._settings.failures and now - self._failures[0] <= self._settings.window:
                self._open_until = now + self._settings.cooldown
