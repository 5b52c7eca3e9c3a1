"""`Caller` makes one call for each round of a client's requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from gaia.mcp.protocol.exchange import NOT_NEGOTIATED
from gaia.mcp.protocol.messages import is_tool_error
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.rpc.call import Call, CallRoute, ProgressSink
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.status import CallStatistics
from gaia.runtime.clock import Clock


class CallEntry(CallRoute, Protocol):
    @property
    def ready(self) -> Connection | None:
        """The connection that calls go to; None if there is none in this process."""


class Supervised(Protocol):
    """Keeps a server alive: a supervisor, a pool of them, or a handle of one process."""

    @property
    def call_queue(self) -> CallEntry: ...

    @property
    def next_id(self) -> Callable[[], int]: ...


S = TypeVar("S", bound=Supervised)


class Caller(Generic[S]):
    """Makes the calls of one client. Thread-safe."""

    def __init__(self, supervisor: S, clock: Clock, timeout: float) -> None:
        """`timeout` is in seconds, for requests without one of their own."""
        self.supervisor = supervisor
        """The session replaces it when it connects again; each call reads it once."""
        self.statistics = CallStatistics()
        self.timeout = timeout
        """The session replaces it when the server gets another configuration."""
        self._clock = clock

    def new_call(
        self,
        exchange: RequestExchange,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call:
        supervisor, timeout, max_timeout = self.supervisor, exchange.options.timeout, exchange.max_timeout
        call_queue, now = supervisor.call_queue, self._clock.monotonic()
        if timeout is None:
            timeout = self.timeout
        if exchange.deadline is not None:
            left = max(0.0, exchange.deadline - now)
            timeout = min(timeout, left)
            max_timeout = None if max_timeout is None else min(max_timeout, left)
        # If no connection is ready now, the one that takes the call adds the metadata.
        connection = call_queue.ready
        call = Call(
            supervisor.next_id(),
            exchange.method,
            exchange.params,
            now,
            timeout,
            repeatable=exchange.repeatable,
            negotiated=NOT_NEGOTIATED if connection is None else connection.negotiated,
            on_done=on_done,
            on_progress=on_progress,
            observer=exchange.observation,
            max_timeout=max_timeout,
            tool=exchange.tool,
            route=call_queue,
            owner=exchange.owner,
            headers=exchange.options.headers,
            origin=exchange.origin,
        )
        if exchange.observation is not None:
            exchange.observation.numbered(call.id)
        return call

    def record(self, call: Call) -> None:
        failed = call.error is not None or is_tool_error(call.result) or call.facts.is_error is True
        self.statistics.record(self._clock.monotonic() - call.now, failed=failed)
