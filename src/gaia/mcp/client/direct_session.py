"""`DirectSession`: a session over the application's own four-method transport, in the caller's thread, unsupervised."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    InvalidResponse,
    MCPError,
    NotConnected,
    NotOffered,
    ServerCrashed,
    answered_error,
)
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, ClientIdentity, ServerProfile
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, Notify, Send, SetProtocolVersion, drive
from gaia.mcp.protocol.gateway_answers import failure_in, failure_of
from gaia.mcp.protocol.messages import is_tool_error
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.protocol.rounds import check_result_type
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.rpc.call import Call, ProgressSink
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import CallStatistics, ServerStatus
from gaia.mcp.transports.base import MCPTransport
from gaia.runtime.clock import Clock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_FIRST_VERSION = "1.0.0"
"""The version that transports written for an earlier form of this interface answer. It means the oldest revision."""


@dataclasses.dataclass(eq=False)
class DirectSession:
    """Has the methods of `SupervisedSession`, and uses only the four methods of an application's transport.

    `send_request` takes no deadline, so deadlines are the transport's own. Thread-safe if the transport is.
    """

    name: str
    transport: MCPTransport
    identity: ClientIdentity
    negotiation: Negotiation
    observer: Observer
    clock: Clock
    profile: ServerProfile | None = None
    last_error: str | None = None
    statistics: CallStatistics = dataclasses.field(default_factory=CallStatistics)
    timeout: float = math.inf
    _ids: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    _negotiated = NOT_NEGOTIATED
    _closed = False

    @property
    def state(self) -> ServerState:
        if self.is_connected():
            return ServerState.READY
        return ServerState.CLOSED if self._closed else ServerState.CREATED

    keeps_trying = False
    waits_in_caller = True

    def scale(self, number: int) -> NoReturn:
        raise NotOffered(f"server {self.name!r} is reached over {type(self.transport).__name__}, and has no replicas")

    def pin(self) -> NoReturn:
        raise NotOffered(
            f"server {self.name!r} is reached over {type(self.transport).__name__}, which does not tell one process of "
            "the server from the next"
        )

    def pin_to(self, generation: int) -> NoReturn:
        self.pin()

    def connect(self, *, keep_trying: bool = False) -> bool:
        try:
            connected = self.transport.connect()
        except (RuntimeError, OSError, ValueError) as error:
            connected, self.last_error = False, str(error) or type(error).__name__
        else:
            self.last_error = None if connected else "the transport could not connect"
        if not connected:
            logger.error("connect_failed", server=self.name, error=self.last_error)
            return False
        try:
            self.profile = drive(self.negotiation.open(self.identity), self._ask, self._tell)
        except MCPError as error:
            self.last_error = error.message
            logger.error("handshake_failed", server=self.name, error=error.message)
            self.transport.disconnect()
            return False
        self._closed = False
        return True

    def replace(self) -> None:
        """Does nothing: the transport has one connection."""

    def reconfigure(self, context: object, kind: object) -> MCPError:
        return MCPError(f"server {self.name!r} is reached by a transport of the application, which has to replace it")

    def wake(self) -> None:
        """Does nothing: the server never rests."""

    def adopted(self) -> None:
        """Never called: there is no supervisor."""

    def request_disconnect(self, drain: float = 0.0) -> None:
        """Does nothing: `disconnect` does not wait."""

    def abandon(self, release: Callable[[], object]) -> bool:
        return False

    def disconnect(self, then: Callable[[], object] = lambda: None, drain: float = 0.0) -> None:
        self._closed = True
        self.transport.disconnect()
        then()

    def is_connected(self) -> bool:
        return bool(self.transport.is_connected())

    def status(self, tool_count: int) -> ServerStatus:
        p50, p95 = self.statistics.percentiles(0.50, 0.95)
        return ServerStatus(
            name=self.name,
            state=self.state,
            tool_count=tool_count,
            last_error=self.last_error,
            calls=self.statistics.calls,
            errors=self.statistics.errors,
            latency_p50=p50,
            latency_p95=p95,
            protocol_version=None if self.profile is None else self.profile.protocol_version,
        )

    # Calls. The session is their route and makes them in the thread that submits them.

    def new_call(
        self,
        exchange: RequestExchange,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call:
        if exchange.owner is not None:
            raise NotOffered(
                f"server {self.name!r} has a transport of the application with the four methods alone, over which a "
                "gateway cannot pass requests on; give it a ChannelTransport",
                delivery="not_sent",
            )
        return _DirectCall(
            next(self._ids),
            exchange.method,
            exchange.params,
            self.clock.monotonic(),
            math.inf,
            on_done=on_done,
            tool=exchange.tool,
            route=self,
        )

    def record(self, call: Call) -> None:
        failed = call.error is not None or is_tool_error(call.result)
        self.statistics.record(self.clock.monotonic() - call.now, failed=failed)

    def require_connected(self) -> None:
        if not self.is_connected():
            raise NotConnected(f"Not connected to server {self.name!r}: call connect() first")

    def submit(self, call: Call) -> bool:
        """See `CallRoute`. The call has ended when this returns."""
        try:
            self.require_connected()
            if call.begin_write():
                call.finish(self._answer(Send(call.method, call.params)))
        except MCPError as error:
            if error.delivery == "not_sent":
                call.undo_write()
            call.finish(error=error)
        return True

    def expire(self, call: Call) -> bool:
        """Never called: the call has no deadline."""
        return call.finish(error=call.timed_out())

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        """End the call. The transport goes on with the request, and its result is not used."""
        return call.finish(error=error)

    def subscriptions_changed(self) -> None:
        """Does nothing: notifications do not pass the four methods."""

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Does nothing: notifications do not pass the four methods."""

    def _tell(self, step: Notify | SetProtocolVersion) -> None:
        if isinstance(step, SetProtocolVersion):
            self._negotiated = step.protocol
            self.observer.protocol_version = step.protocol.revision

    def _ask(self, send: Send) -> dict[str, Any]:
        observation = self.observer.begin(send.method, send.params)
        try:
            result = self._answer(Send(send.method, observation.prepare(send.params)))
        except BaseException as error:
            observation.ended(error, {})
            raise
        observation.ended(None, result)
        if result.get("protocolVersion") == _FIRST_VERSION:
            return {**result, "protocolVersion": HANDSHAKE_REVISIONS[-1]}
        return result

    def _answer(self, send: Send) -> dict[str, Any]:
        params = self._negotiated.add_meta(send.params, None)
        arguments = (send.method,) if params is None else (send.method, params)
        try:
            response = self.transport.send_request(*arguments)
        except MCPError:
            raise
        except TimeoutError as error:
            raise CallTimeout(str(error) or f"{send.method} was not answered in time", delivery="unknown") from error
        except ValueError as error:
            raise InvalidResponse(str(error)) from error
        except (RuntimeError, OSError) as error:
            self.last_error = str(error)
            raise ServerCrashed(str(error), delivery="unknown") from error
        result = _result(send.method, response, self.profile is not None and self.profile.is_gateway)
        problem = None if self._negotiated.server_may_ask else check_result_type(send.method, result)
        if problem is not None:
            raise problem
        return result


class _DirectCall(Call):
    def _encode(self) -> bytes:
        return b""


def _result(method: str, response: Any, of_gateway: bool) -> dict[str, Any]:
    if isinstance(response, dict):
        error, result = response.get("error"), response.get("result")
        if isinstance(error, dict):
            code, text, data = error.get("code"), str(error.get("message", "")), error.get("data")
            code = code if isinstance(code, int) else 0
            failure = failure_of(code, text, data) if of_gateway else None
            raise failure or answered_error(code, text, data)
        if isinstance(result, dict):
            if of_gateway and result.get("isError") is True and (failure := failure_in(result)) is not None:
                raise failure
            return result
    raise InvalidResponse(f"the transport answered {method} with neither a result nor an error object")
