"""`Gate`: one limit that calls pass through, and the calls that wait for it, by turns of their clients."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

from gaia.mcp.gateway.access.limit_settings import Limit
from gaia.runtime.rates import TokenBucket


class Timer(Protocol):
    def cancel(self) -> Any: ...


class Scheduler(Protocol):
    """The part of an asyncio event loop that sets timers; a test has one whose time it moves itself."""

    def time(self) -> float:
        """Seconds of a monotonic clock."""

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any) -> Timer: ...


class Lane(Protocol):
    """Calls of one client that pass through the same gates, in the order of arrival."""

    @property
    def client(self) -> str: ...

    parked_at: Gate | None
    """The gate that the first of its calls waits for."""


class Gate:
    """A bound on calls at once, a token bucket, or both. For one event loop."""

    __slots__ = ("_bucket", "_limit", "group", "name", "running", "timer", "waiting")

    def __init__(self, name: str, limit: Limit, now: float, group: str | None = None) -> None:
        self.name = name
        """For messages: what is limited."""
        self.group = group or name
        """What metrics call it: one name for the same limit of all clients of an issuer."""
        self.running = 0
        self.waiting: OrderedDict[str, deque[Lane]] = OrderedDict()
        """Clients in the order of their turns, and the lanes of each."""
        self.timer: Timer | None = None
        """Until the next token, while lanes wait for it."""
        self._limit = limit
        self._bucket = _bucket_of(limit, now)

    @property
    def limit(self) -> Limit:
        return self._limit

    def change(self, limit: Limit, now: float) -> None:
        """Continue with other figures. What runs, runs on; the bucket keeps what fits into it."""
        self._limit = limit
        if self._bucket is not None and limit.per_second is not None:
            self._bucket.change(_burst(limit), limit.per_second, now)
        else:
            self._bucket = _bucket_of(limit, now)

    def delay(self, now: float) -> float | None:
        """Seconds until a call may pass: 0 for now, None if that depends on the end of another call."""
        limit = self._limit
        if limit.concurrent is not None and self.running >= limit.concurrent:
            return None
        return 0.0 if self._bucket is None else self._bucket.delay(now)

    def enter(self) -> None:
        """A call passes; `delay` has just said that it may."""
        self.running += 1
        if self._bucket is not None:
            self._bucket.take()

    def leave(self) -> None:
        """A call that has passed is over."""
        self.running -= 1

    def is_idle(self, now: float) -> bool:
        """Whether a new gate would be the same: nothing runs or waits, and the bucket is full."""
        return not self.running and not self.waiting and (self._bucket is None or self._bucket.is_full(now))

    def park(self, lane: Lane) -> None:
        """Have a lane wait: behind the other lanes of its client, which keeps its turn."""
        self.waiting.setdefault(lane.client, deque()).append(lane)
        lane.parked_at = self

    def unpark(self, lane: Lane) -> None:
        lanes = self.waiting[lane.client]
        lanes.remove(lane)
        if not lanes:
            del self.waiting[lane.client]
        lane.parked_at = None

    def next_lane(self) -> Lane:
        """Take out the lane whose turn it is; the next turn is another client's."""
        client, lanes = next(iter(self.waiting.items()))
        lane = lanes.popleft()
        if lanes:
            self.waiting.move_to_end(client)
        else:
            del self.waiting[client]
        lane.parked_at = None
        return lane

    def describe(self) -> str:
        """The limit in words."""
        limit = self._limit
        figures = [] if limit.concurrent is None else [f"{limit.concurrent} at once"]
        if limit.per_second is not None:
            figures.append(f"{limit.per_second:g} per second")
        return f"{self.name}: {' and '.join(figures)}"


def _bucket_of(limit: Limit, now: float) -> TokenBucket | None:
    return None if limit.per_second is None else TokenBucket(_burst(limit), limit.per_second, now)


def _burst(limit: Limit) -> float:
    return float(limit.burst) if limit.burst is not None else max(1.0, limit.per_second or 1.0)
