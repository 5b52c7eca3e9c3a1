"""A transport used by itself, without a client: the four methods over one connection."""

from __future__ import annotations

import itertools
import threading
from abc import abstractmethod
from typing import Any, Protocol

from gaia.mcp.errors import (
    AnswerLost,
    CallCancelled,
    JsonRpcError,
    NotConnected,
    ServerCrashed,
    StartFailed,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Channel, Ending
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.transports.base import ChannelTransport
from gaia.runtime.clock import SystemClock, require_seconds
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_CAUSE_SECONDS = 0.5
"""How long to wait for the exit status of a server whose connection is over; it usually is there at once."""
_DEFAULT_GRACE = 2.0
"""Seconds that a server gets to leave after the end of its input, before it is sent SIGTERM."""


class StandaloneChannel(Channel, Protocol):
    """A channel that knows whether its server is there."""

    is_forked: bool

    def is_alive(self) -> bool: ...


class StandaloneTransport(ChannelTransport):
    """The four methods of `MCPTransport` for transports that have channels. Several threads may send requests."""

    def __init__(self, timeout: float, max_pending: int) -> None:
        """`timeout` is in seconds; `max_pending` bounds the requests that may be under way at once.

        Raises ValueError for a `timeout` that is no duration (`require_seconds`).
        """
        require_seconds("timeout", timeout)
        self.timeout = timeout
        self._max_pending = max_pending
        self._channel: StandaloneChannel | None = None
        self._connection: Connection | None = None
        self._ids = itertools.count(1)
        self._request_id = 0
        self._lifecycle = reentrant_lock()
        """Owns `_channel` and `_connection` in `connect` and `disconnect`, and the two below."""
        self._connecting_in: int | None = None
        self._cut_short = False
        """A signal handler or a finalizer has disconnected in the middle of `connect`, in the same thread."""

    @property
    @abstractmethod
    def _label(self) -> str:
        """The server's name in threads and log lines."""

    def _answered(self, connection: Connection, method: str, result: dict[str, Any]) -> None:
        """A request was answered; for transports that have to know what was agreed on."""

    def connect(self) -> bool:
        """Start the server, unless it is running. False if it cannot be started; the log says why.

        Raises RuntimeError if it is called by a signal handler or a finalizer that interrupted it.
        """
        with self._lifecycle:
            if self._connecting_in == threading.get_ident():
                raise RuntimeError("connect() was called by a signal handler or a finalizer that interrupted it")
            try:
                self._connecting_in, self._cut_short = threading.get_ident(), False
                connected = self._open()
                if self._cut_short:
                    self._close()
                return connected and not self._cut_short
            finally:
                self._connecting_in = None

    def _open(self) -> bool:
        if self.is_connected():
            return True
        self._close()
        name = self._label
        connection = Connection(
            name,
            generation=1,
            clock=SystemClock(),
            max_pending=self._max_pending,
            on_notification=lambda _notification: None,
            on_ended=_fail_all,
        )
        try:
            connection.channel = self.open(connection, name)
        except StartFailed as error:
            logger.error("server_start_failed", server=name, error=str(error))
            return False
        self._connection = connection
        return True

    def disconnect(self) -> None:
        """Stop the server and all it started; harmless when it is not running."""
        with self._lifecycle:
            self._cut_short = True
            self._close()

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = self._connection
        if connection is None or not self.is_connected():
            raise NotConnected(f"Transport not connected: {self._why_not_connected()}; call connect() first")
        clock = SystemClock()
        self._request_id = next(self._ids)
        call = Call(self._request_id, method, params, clock.monotonic(), self.timeout, route=connection)
        call.perform(clock)
        if isinstance(call.error, ServerCrashed) and not isinstance(call.error, AnswerLost):
            raise ServerCrashed(f"the server ended during {method}: {_cause(connection)}", delivery=call.error.delivery)
        if call.error is None:
            self._answered(connection, method, call.result)
        return _response(call)

    def is_connected(self) -> bool:
        if self._connection is not None and self._connection.state is ConnectionState.CLOSED:
            return False
        return self._channel is not None and self._channel.is_alive()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        for call in connection.close():
            call.finish(error=CallCancelled("the server was disconnected"))
        if connection.channel is not None:
            connection.channel.close(_DEFAULT_GRACE)

    def _why_not_connected(self) -> str:
        connection, channel = self._connection, self._channel
        if connection is None or channel is None:
            return "the server is not running"
        if channel.is_forked:
            return "the server belongs to the parent process"
        return f"the server has ended: {_cause(connection)}"


def _fail_all(connection: Connection) -> None:
    for call in connection.close():
        call.finish(error=ServerCrashed("the server has ended"))


def _cause(connection: Connection) -> Ending:
    """How the server of a connection that is over ended."""
    ending = None if connection.channel is None else connection.channel.ending(_CAUSE_SECONDS)
    return ending or Ending()


def _response(call: Call) -> dict[str, Any]:
    error = call.error
    if error is None:
        return {"jsonrpc": "2.0", "id": call.id, "result": call.result}
    if isinstance(error, JsonRpcError):
        details = {"code": error.code, "message": error.message}
        if error.data is not None:
            details["data"] = error.data
        return {"jsonrpc": "2.0", "id": call.id, "error": details}
    raise error
