"""`Caller` makes the calls of one client: each round of a request is one call. What it needs of a session's server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED
from gaia.mcp.protocol.messages import is_tool_error
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.rpc.call import Call, CallRoute, ProgressSink
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.status import CallStatistics, ServerStatus
from gaia.runtime.clock import Clock


class CallEntry(CallRoute, Protocol):
    """Where calls enter: a call queue."""

    @property
    def ready(self) -> Connection | None:
        """The connection that calls go to, if it is one of this program."""


class Supervised(Protocol):
    """What keeps one server alive: a supervisor of this program, or what stands for one elsewhere."""

    @property
    def call_queue(self) -> CallEntry: ...

    @property
    def next_id(self) -> Callable[[], int]: ...


class Condition(Protocol):
    """What a session reads of a server's condition."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def last_error(self) -> str | None: ...

    @property
    def keep_trying(self) -> bool: ...

    @property
    def ever_ready(self) -> bool: ...

    def status(self, statistics: CallStatistics, tool_count: int) -> ServerStatus: ...


class NewCall(Protocol):
    """Makes a call of the next round of a request. It is not submitted yet: see `Call.perform` and `Call.start`.

    Raises ValueError for params that are no JSON. The hooks are those of `Call`.
    """

    def __call__(
        self,
        exchange: RequestExchange,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call: ...


class RequestSession(Protocol):
    """What requests need of a session. Thread-safe."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def timeout(self) -> float:
        """Seconds, for requests without a timeout of their own; infinite if only the transport knows."""

    @property
    def waits_in_caller(self) -> bool:
        """Whether a call that is submitted ends in the thread that submits it."""

    @property
    def new_call(self) -> NewCall: ...

    @property
    def record(self) -> Callable[[Call], None]:
        """Count a call that has ended."""

    def is_connected(self) -> bool: ...

    def require_connected(self) -> None:
        """Raises NotConnected if the client was never connected, or was disconnected."""

    def subscriptions_changed(self) -> None:
        """The client wants other changes or log messages of the server than before (`Subscriptions`)."""


S = TypeVar("S", bound=Supervised)


class Caller(Generic[S]):
    """Makes the calls of one client. Thread-safe."""

    def __init__(self, supervisor: S, clock: Clock, timeout: float) -> None:
        """`timeout` is in seconds, for requests without one of their own."""
        self.supervisor = supervisor
        """Replaced by the session when it connects again; each call reads it once."""
        self.statistics = CallStatistics()
        self.timeout = timeout
        """Replaced when the server gets another configuration."""
        self._clock = clock

    def new_call(
        self,
        exchange: RequestExchange,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call:
        """See `NewCall`."""
        supervisor, timeout = self.supervisor, exchange.options.timeout
        call_queue = supervisor.call_queue
        # The connection that the call is submitted to adds what is not known yet.
        connection = call_queue.ready
        call = Call(
            supervisor.next_id(),
            exchange.method,
            exchange.params,
            self._clock.monotonic(),
            self.timeout if timeout is None else timeout,
            repeatable=exchange.repeatable,
            negotiated=NOT_NEGOTIATED if connection is None else connection.negotiated,
            on_done=on_done,
            on_progress=on_progress,
            observer=exchange.observation,
            max_timeout=exchange.max_timeout,
            tool=exchange.tool,
            route=call_queue,
            owner=exchange.owner,
        )
        if exchange.observation is not None:
            exchange.observation.numbered(call.id)
        return call

    def record(self, call: Call) -> None:
        """Count a call that has ended."""
        failed = call.error is not None or is_tool_error(call.result) or call.facts.is_error is True
        self.statistics.record(self._clock.monotonic() - call.now, failed=failed)
