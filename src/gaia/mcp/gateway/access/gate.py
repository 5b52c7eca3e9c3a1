"""`Gate`: one limit that calls pass, and the queue of waiting calls, in which clients take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

from gaia.mcp.gateway.access.settings import Limit
from gaia.runtime.rates import TokenBucket


class Timer(Protocol):
    def cancel(self) -> Any: ...


class Scheduler(Protocol):
    """The part of an asyncio event loop that sets timers. A test passes one with a clock that it controls."""

    def time(self) -> float:
        """A reading of a monotonic clock, in seconds."""

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any) -> Timer: ...


class Lane(Protocol):
    """A queue of calls of one client that pass the same gates."""

    @property
    def client(self) -> str: ...

    parked_at: Gate | None
    """The gate that the first call of the lane waits for."""


class Gate:
    """A bound on concurrent calls, a token bucket, or both. For one event loop."""

    __slots__ = ("_bucket", "_limit", "group", "name", "running", "timer", "waiting")

    def __init__(self, name: str, limit: Limit, now: float, group: str | None = None) -> None:
        self.name = name
        """Names the limit in messages."""
        self.group = group or name
        """Names the limit in metrics: the same for all clients of an issuer."""
        self.running = 0
        self.waiting: OrderedDict[str, deque[Lane]] = OrderedDict()
        """The lanes of each client that waits. The first client is the next one."""
        self.timer: Timer | None = None
        """Fires when the next token is there, while lanes wait for it."""
        self._limit = limit
        self._bucket = _bucket_of(limit, now)

    @property
    def limit(self) -> Limit:
        return self._limit

    def change(self, limit: Limit, now: float) -> None:
        """Use other figures. Running calls continue; the bucket keeps the tokens that fit into it."""
        self._limit = limit
        if self._bucket is not None and limit.per_second is not None:
            self._bucket.change(_burst(limit), limit.per_second, now)
        else:
            self._bucket = _bucket_of(limit, now)

    def delay(self, now: float) -> float | None:
        """Seconds until a call may pass: 0 for now, None if another call has to end first."""
        limit = self._limit
        if limit.concurrent is not None and self.running >= limit.concurrent:
            return None
        return 0.0 if self._bucket is None else self._bucket.delay(now)

    def enter(self) -> None:
        """Let a call pass, right after `delay` was 0."""
        self.running += 1
        if self._bucket is not None:
            self._bucket.take()

    def leave(self) -> None:
        """Record the end of a call that has passed."""
        self.running -= 1

    def is_idle(self, now: float) -> bool:
        """Whether a new gate would be equal: nothing runs or waits, and the bucket is full."""
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
        lane = lanes.popleft()
        if lanes:
            self.waiting.move_to_end(client)
        else:
            del self.waiting[client]
        lane.parked_at = None
        return lane

    def describe(self) -> str:
        """The limit in words, for messages."""
        limit = self._limit
        figures = [] if limit.concurrent is None else [f"{limit.concurrent} at once"]
        if limit.per_second is not None:
            figures.append(f"{limit.per_second:g} per second")
        return f"{self.name}: {' and '.join(figures)}"


def _bucket_of(limit: Limit, now: float) -> TokenBucket | None:
    return None if limit.per_second is None else TokenBucket(_burst(limit), limit.per_second, now)


def _burst(limit: Limit) -> float:
    return float(limit.burst) if limit.burst is not None else max(1.0, limit.per_second or 1.0)
