"""`Circuit`: leaves a tool alone that keeps failing."""

from __future__ import annotations

from collections import deque

from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.gateway.access.limit_settings import CircuitSettings


class CircuitOpen(ServerUnavailable):
    """The gateway refuses calls of a tool that has failed too often. Its server may be ready."""


class Circuit:
    """Closed while calls succeed, open after too many failures, and then tried with one call. For one event loop.

    Times are readings of one monotonic clock, in seconds.
    """

    __slots__ = ("_failures", "_open_until", "_settings", "_tried", "name")

    def __init__(self, name: str, settings: CircuitSettings) -> None:
        self.name = name
        """Of the tool, for messages."""
        self._settings = settings
        self._failures: deque[float] = deque(maxlen=settings.failures)
        """When the last calls failed that no good one has followed."""
        self._open_until: float | None = None
        """When a trial may be made; None while the circuit is closed."""
        self._tried = False
        """Whether a trial is under way."""

    @property
    def settings(self) -> CircuitSettings:
        return self._settings

    @property
    def is_closed(self) -> bool:
        return self._open_until is None

    def retry_in(self, now: float) -> float | None:
        """Seconds until a call is let through again; None if one would be now."""
        if self._open_until is None or (now >= self._open_until and not self._tried):
            return None
        return max(self._open_until - now, 1.0)

    def enter(self) -> bool:
        """A call is let through, as `retry_in` has just permitted. Whether it is the trial."""
        self._tried = self._open_until is not None
        return self._tried

    def note(self, failed: bool | None, *, trial: bool, now: float) -> None:
        """A call that was let through is over. `failed` is None if that says nothing about the tool."""
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
