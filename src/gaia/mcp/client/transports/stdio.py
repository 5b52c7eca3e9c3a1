"""Servers as subprocesses that speak over their standard input and output (specification, "stdio")."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import msgspec

from gaia.log import enable_debug, get_logger
from gaia.mcp.client.protocol.framing import DEFAULT_MAX_LINE_BYTES, LineFramer
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import ChannelListener, Ending, Outgoing
from gaia.mcp.client.rpc.clock import SystemClock
from gaia.mcp.client.rpc.connection import Connection, ConnectionState
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.client.transports.command import argument_vector, find_executable
from gaia.mcp.client.transports.environment import server_environment
from gaia.mcp.client.transports.pipe_size import enlarge
from gaia.mcp.client.transports.pipe_writer import PipeWriter
from gaia.mcp.client.transports.process import ServerProcess
from gaia.mcp.client.transports.stderr_tail import StderrTail
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

__all__ = ["StdioChannel", "StdioTransport"]

logger = get_logger(__name__)

_READ_BYTES = 64 * 1024
_LARGE_READ_BYTES = 1024 * 1024
_JOIN_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.5
"""What a server wrote before it ended is still in the pipes, and read at once unless something else holds them open."""
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
            if not call.wait(clock):
                _give_up(connection, call, CallTimeout(f"no answer to {method} within {self.timeout:g} s"), "timeout")
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


def _give_up(connection: Connection, call: Call, error: MCPError, reason: str) -> None:
    if call.finish(error=error):
        connection.abandon(call, reason)
    else:
        # It ended in this very moment; whoever ended it is about to release it.
        call.wait_for_outcome()


def _cause(connection: Connection) -> Ending:
    """How the server of a connection that is over ended."""
    ending = None if connection.channel is None else connection.channel.ending(_LAST_WORDS_SECONDS)
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


class StdioChannel:
    """One running server: its process, its three pipes and the threads that serve them."""

    def __init__(
        self,
        argv: list[str],
        environment: Mapping[str, str],
        cwd: str | None,
        listener: ChannelListener,
        *,
        name: str,
        redact: Redactor,
        max_message_bytes: int,
        max_pending: int,
    ) -> None:
        """Start the server and the threads. Raises StartFailed; nothing is left behind then."""
        thread_name = f"mcp-{name}"
        self._redact = redact
        self._listener = listener
        self._framer = LineFramer(max_message_bytes)
        self._stderr = StderrTail(name, redact)
        self._readers: list[threading.Thread] = []
        self._writer: PipeWriter | None = None
        self.is_abandoned = False
        self._process = ServerProcess(argv, environment, cwd, thread_name, self._server_exited)
        _open_channels.add(self)
        try:
            # stderr is drained before the first byte is sent: a server that logs a lot must not block on it.
            self._start(f"{thread_name}-stderr", self._read_stderr)
            self._start(f"{thread_name}-reader", self._read_stdout)
            self._writer = PipeWriter(
                self._process.stdin, thread_name, max_pending=max_pending, on_broken=self._input_closed
            )
        except BaseException as error:
            self.close(0.0)
            if isinstance(error, RuntimeError):
                raise StartFailed(f"no threads for the server: {error}") from error
            raise

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        return self._process.popen

    def is_alive(self) -> bool:
        return not self.is_abandoned and self._process.wait(0) is None

    def send(self, item: Outgoing) -> bool:
        assert self._writer is not None, "the writer exists as soon as the constructor has returned"
        return self._writer.send(item)

    def redact(self, text: str) -> str:
        return self._redact(text)

    def stderr_tail(self) -> str:
        return self._stderr.text()

    def ending(self, wait: float) -> Ending | None:
        ending = self._process.wait(wait)
        if ending is None:
            return None
        self._hear_last_words(_LAST_WORDS_SECONDS)
        return self._with_stderr(ending)

    def close(self, grace: float) -> Ending:
        if self.is_abandoned:
            return Ending()
        if self._writer is not None:
            self._writer.close()
        else:
            self._process.stdin.close()
        ending = self._process.stop(grace)
        if self._hear_last_words(_JOIN_SECONDS):
            for pipe in (self._process.stdout, self._process.stderr):
                pipe.close()
        else:
            # A reader in the middle of a read would go on with whatever gets the number of a closed descriptor. So it
            # closes its pipe itself, as soon as whatever we could not end lets go of the other side.
            logger.error("output_still_open", pid=self.pid)
        _open_channels.discard(self)
        return self._with_stderr(ending)

    def abandon(self) -> None:
        """Close our copies of the pipes, so that the parent alone decides when the server's input ends."""
        self.is_abandoned = True
        if self._writer is not None:
            self._writer.abandon()
        self._process.popen.returncode = 0
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            pipe.close()

    def _server_exited(self) -> None:
        """Runs on the thread that waits for the process."""
        self._hear_last_words(_LAST_WORDS_SECONDS)
        self._listener.channel_ended()

    def _input_closed(self) -> None:
        """The server reads no more, most likely because it is about to exit. Runs on the writer thread."""
        self._process.wait(_LAST_WORDS_SECONDS)
        self._server_exited()

    def _hear_last_words(self, timeout: float) -> bool:
        """Wait until everything that the server wrote is read; False if its output is still open after `timeout`."""
        deadline = time.monotonic() + timeout
        for reader in self._readers:
            if reader is not threading.current_thread():
                reader.join(max(0.0, deadline - time.monotonic()))
        return not any(reader.is_alive() for reader in self._readers)

    def _with_stderr(self, ending: Ending) -> Ending:
        return msgspec.structs.replace(ending, stderr_tail=self._stderr.text())

    def _start(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._readers.append(thread)

    def _read_stdout(self) -> None:
        feed, received = self._framer.feed, self._listener.message_received
        try:
            with self._process.stdout as pipe:
                for chunk in _chunks(pipe):
                    for line in feed(chunk):
                        received(line)
            rest = self._framer.finish()
            if rest is not None:
                received(rest)
        finally:
            self._listener.channel_ended()

    def _read_stderr(self) -> None:
        with self._process.stderr as pipe:
            for chunk in _chunks(pipe):
                self._stderr.feed(chunk)
        self._stderr.finish()


def _chunks(pipe: IO[bytes]) -> Iterator[bytes]:
    descriptor = pipe.fileno()
    size, enlarged = _READ_BYTES, False
    while True:
        try:
            chunk = os.read(descriptor, size)
        except OSError as error:
            logger.warning("pipe_read_failed", error=str(error))
            return
        if not chunk:
            return
        yield chunk
        # A full read means that a large message is under way. Buffers that large cost too much to be the rule.
        size = _LARGE_READ_BYTES if len(chunk) >= _READ_BYTES else _READ_BYTES
        if size == _LARGE_READ_BYTES and not enlarged:
            enlarged = True
            enlarge(descriptor)


_open_channels: weakref.WeakSet[StdioChannel] = weakref.WeakSet()


def _abandon_all() -> None:
    for channel in list(_open_channels):
        channel.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
