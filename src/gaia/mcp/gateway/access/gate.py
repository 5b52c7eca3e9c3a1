"""`Gate` is one limit, with the queue of its waiting calls. `Circuit` is a tool's circuit breaker.

Both are for one event loop. Times are readings of its monotonic clock, in seconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.gateway.access.settings import CircuitSettings, Limit
from gaia.runtime.rates import TokenBucket


class Timer(Protocol):
    def cancel(self) -> Any: ...


class Scheduler(Protocol):
    """The part of an event loop that the gateway uses. Tests pass one with a fake clock."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any) -> Timer: ...

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any) -> Any: ...


class Lane(Protocol):
    @property
    def client(self) -> str: ...

    calls: deque[Any]
    parked_at: Gate | None


class Leased(Protocol):
    """What this gateway has of a limit that several gateways share."""

    @property
    def decides(self) -> bool:
        """Whether it decides in place of the gate's own counts."""

    def may_enter(self) -> bool: ...

    def enter(self) -> None: ...

    def left(self) -> None: ...


class Gate:
    """A bound on concurrent calls, a token bucket, or both. Clients whose calls wait take turns."""

    __slots__ = ("_bucket", "group", "leased", "limit", "name", "running", "timer", "waiting")

    def __init__(self, name: str, limit: Limit, now: float, group: str | None = None) -> None:
        self.name = name
        self.group = group or name
        """The name of the limit in metrics, the same for all clients of an issuer."""
        self.running = 0
        self.waiting: OrderedDict[str, deque[Lane]] = OrderedDict()
        """The lanes of each client with waiting calls. The first client has the next turn."""
        self.timer: Timer | None = None
        """Fires when the next token is available, while lanes wait for it."""
        self.leased: Leased | None = None
        self._bucket: TokenBucket | None = None
        self.change(limit, now)

    def change(self, limit: Limit, now: float) -> None:
        self.limit = limit
        if limit.per_second is None:
            self._bucket = None
            return
        burst = float(limit.burst or max(1.0, limit.per_second))
        if self._bucket is None:
            self._bucket = TokenBucket(burst, limit.per_second, now)
        else:
            self._bucket.change(burst, limit.per_second, now)

    def delay(self, now: float) -> float | None:
        """Seconds until a call may pass: 0 for now, None if another call has to end, or a lease to come."""
        limit, leased = self.limit, self.leased
        if leased is not None and leased.decides:
            return 0.0 if leased.may_enter() else None
        if limit.concurrent is not None and self.running >= limit.concurrent:
            return None
        return 0.0 if self._bucket is None else self._bucket.delay(now)

    def enter(self) -> None:
        self.running += 1
        if self._bucket is not None:
            self._bucket.take()
        if self.leased is not None:
            self.leased.enter()

    def leave(self) -> None:
        self.running -= 1
        if self.leased is not None:
            self.leased.left()

    def is_idle(self, now: float) -> bool:
        return not self.running and not self.waiting and (self._bucket is None or self._bucket.is_full(now))

    def park(self, lane: Lane) -> None:
        """Queue a lane behind the other lanes of its client. The client keeps its turn."""
        self.waiting.setdefault(lane.client, deque()).append(lane)
        lane.parked_at = self

    def unpark(self, lane: Lane) -> None:
        lanes = self.waiting[lane.client]
        lanes.remove(lane)
        if not lanes:
            del self.waiting[lane.client]
        lane.parked_at = None

    def next_lane(self) -> Lane:
        """Remove and return the next lane. The client then goes to the end of the queue."""
        client, lanes = next(iter(self.waiting.items()))
        self.waiting.move_to_end(client)
        lane = lanes[0]
        self.unpark(lane)
        return lane

    def describe(self) -> str:
        limit = self.limit
        figures = [] if limit.concurrent is None else [f"{limit.concurrent} at once"]
        if limit.per_second is not None:
            figures.append(f"{limit.per_second:g} per second")
        return f"{self.name}: {' and '.join(figures)}"


class CircuitOpen(ServerUnavailable):
    """The gateway refuses calls of a tool that has failed too often. Its server may be ready."""


class Circuit:
    """Closed while calls succeed, open after too many failures, then tried with one call."""

    __slots__ = ("_failures", "_open_until", "_tried", "name", "settings")

    def __init__(self, name: str, settings: CircuitSettings) -> None:
        self.name = name
        self.settings = settings
        self._failures: deque[float] = deque(maxlen=settings.failures)
        self._open_until: float | None = None
        """The time from which a trial may be made; None while the circuit is closed."""
        self._tried = False

    @property
    def is_closed(self) -> bool:
        return self._open_until is None

    def retry_in(self, now: float) -> float | None:
        """Seconds until a call is let through; None if one may pass now."""
        if self._open_until is None or (now >= self._open_until and not self._tried):
            return None
        return max(self._open_until - now, 1.0)

    def enter(self) -> bool:
        """Record that a call is let through, after `retry_in` permitted it. Returns whether the call is the trial."""
        self._tried = self._open_until is not None
        return self._tried

    def note(self, failed: bool | None, *, trial: bool, now: float) -> None:
        """Record the end of a call that was let through.

        `failed` is None if it does not show whether the tool works.
        """
        if trial:
            self._tried = False
            if failed:
                self._open_until = now + self.settings.cooldown
            elif failed is False:
                self._open_until = None
                self._failures.clear()
        elif failed is False:
            self._failures.clear()
        elif failed and self._open_until is None:
            self._failures.append(now)
            if len(self._failures) == self.settings.failures and now - self._failures[0] <= self.settings.window:
                self._open_until = now + self.settings.cooldown
