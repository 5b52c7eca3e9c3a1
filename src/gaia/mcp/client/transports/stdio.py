"""Servers as subprocesses that speak over their standard input and output (specification, "stdio")."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gaia.log import enable_debug, get_logger
from gaia.mcp.client.protocol.framing import DEFAULT_MAX_LINE_BYTES
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import ChannelListener, Ending
from gaia.mcp.client.rpc.clock import SystemClock
from gaia.mcp.client.rpc.connection import Connection, ConnectionState
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.client.transports.command import argument_vector, find_executable
from gaia.mcp.client.transports.environment import server_environment
from gaia.mcp.client.transports.stdio_channel import StdioChannel
from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    JsonRpcError,
    MCPError,
    NotConnected,
    ServerCrashed,
    StartFailed,
)
from gaia.mcp.redaction import Redactor, secret_values

__all__ = ["StdioTransport"]

logger = get_logger(__name__)

_CAUSE_SECONDS = 0.5
"""How long to wait for the exit status of a server whose connection is over; it usually is there at once."""
_DEFAULT_GRACE = 2.0
"""Seconds that a server gets to leave after the end of its input, before it is sent SIGTERM."""


class StdioTransport(ChannelTransport):
    """Starts an MCP server as a subprocess and talks to it over pipes. No shell is involved.

    `MCPClient` supervises it: each (re)start is one `open`. Used by itself it has the four methods of `MCPTransport`;
    several threads may then send requests at once.
    """

    network_transport = "pipe"

    def __init__(
        self,
        command: str,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
        debug: bool = False,
        cwd: str | None = None,
        *,
        inherit_env: bool = False,
        max_message_bytes: int = DEFAULT_MAX_LINE_BYTES,
        max_pending: int = 1024,
        expand: Callable[[], tuple[Sequence[str] | None, Mapping[str, str] | None]] | None = None,
    ) -> None:
        """`command` is a program, or without `args` a whole command line (split as a shell would, run without one).

        `env` is added to a small inherited environment (all of ours with `inherit_env`). `timeout` is in seconds.
        `expand`, if given, is asked at each start for the `args` and `env` to use instead, with variables filled in.
        Raises ValueError for a command line with shell operators.
        """
        if debug:
            enable_debug()
        self.command = command
        self.args = None if args is None else list(args)
        self.env = None if env is None else dict(env)
        self.timeout = timeout
        self.debug = debug
        self.cwd = cwd
        self._inherit_env = inherit_env
        self._max_message_bytes = max_message_bytes
        self._max_pending = max_pending
        self._expand = expand or (lambda: (self.args, self.env))
        self._argv = argument_vector(command, args)
        self._channel: StdioChannel | None = None
        self._connection: Connection | None = None
        self._ids = itertools.count(1)
        self._request_id = 0
        self._lifecycle = threading.Lock()
        """Owns `_channel` and `_connection` in `connect` and `disconnect`."""

    def __repr__(self) -> str:
        # Arguments and environment may hold secrets.
        return f"StdioTransport({self._argv[0]!r}, connected={self.is_connected()})"

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        """The server's process, for those who need to look; None before the first start."""
        return None if self._channel is None else self._channel.popen

    def stderr_tail(self) -> str:
        """The last lines that the present server, or the last one, wrote on its standard error; secrets are masked."""
        channel = self._channel
        return "" if channel is None else channel.stderr_tail()

    def open(self, listener: ChannelListener, name: str) -> StdioChannel:
        args, environment = self._expand()
        command, *args = argument_vector(self.command, args)
        complete = server_environment(environment, inherit_all=self._inherit_env)
        cwd = None if self.cwd is None else os.path.abspath(os.path.expanduser(self.cwd))
        if cwd is not None and not os.path.isdir(cwd):
            raise StartFailed(f"the working directory {cwd} does not exist")
        argv = [find_executable(command, complete, cwd), *args]
        self._channel = StdioChannel(
            argv,
            complete,
            cwd,
            listener,
            name=name,
            redact=Redactor(secret_values(environment or {})),
            max_message_bytes=self._max_message_bytes,
            max_pending=self._max_pending,
        )
        return self._channel

    # The four methods, for use without a client.

    def connect(self) -> bool:
        """Start the server, unless it is running. False if it cannot be started; the log says why."""
        with self._lifecycle:
            if self.is_connected():
                return True
            self._close()
            name = os.path.basename(self._argv[0])
            connection = Connection(
                name,
                generation=1,
                clock=SystemClock(),
                max_pending=self._max_pending,
                on_notification=lambda _notification: None,
                on_ended=_fail_all,
            )
            try:
                connection.attach(self.open(connection, name))
            except StartFailed as error:
                logger.error("server_start_failed", command=self._argv[0], error=str(error))
                return False
            self._connection = connection
            return True

    def disconnect(self) -> None:
        """Stop the server and all it started; harmless when it is not running."""
        with self._lifecycle:
            self._close()

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = self._connection
        if connection is None or not self.is_connected():
            raise NotConnected(f"{self._why_not_connected()}; call connect() first")
        clock = SystemClock()
        self._request_id = next(self._ids)
        call = Call(self._request_id, method, params, clock.monotonic(), self.timeout)
        try:
            if not connection.submit(call):
                call.finish(error=ServerCrashed("the server has ended"))
            timeout = CallTimeout(f"no answer to {method} within {self.timeout:g} s")
            if not call.wait(clock) and not _give_up(connection, call, timeout, "timeout"):
                # It ended in this very moment; whoever ended it is about to release it.
                call.wait_for_outcome()
        except BaseException:
            # Ctrl-C in the waiting thread, for example: the server must not go on for nobody.
            _give_up(connection, call, CallCancelled("the caller was interrupted"), "the caller was interrupted")
            raise
        if isinstance(call.error, ServerCrashed):
            raise ServerCrashed(f"the server ended during {method}: {_cause(connection)}", delivery=call.error.delivery)
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
        if channel.is_abandoned:
            return "the server belongs to the parent process"
        return f"the server has ended: {_cause(connection)}"


def _fail_all(connection: Connection) -> None:
    for call in connection.close():
        call.finish(error=ServerCrashed("the server has ended"))


def _give_up(connection: Connection, call: Call, error: MCPError, reason: str) -> bool:
    """False if the call has ended already."""
    if not call.finish(error=error):
        return False
    connection.abandon(call, reason)
    return True


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
