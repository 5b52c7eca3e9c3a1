"""The transport interface for users, the wider one for supervision, and base classes for both.

`StandaloneTransport` gives a transport with channels the four methods for use without a client. `InProcessServer` is a
server in this program with its own transport.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from gaia.mcp.errors import (
    AnswerLost,
    CallCancelled,
    JsonRpcError,
    NotConnected,
    ServerCrashed,
    StartFailed,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.runtime.clock import Clock, SystemClock, require_seconds
from gaia.runtime.locks import WeakObjects, reentrant_lock
from gaia.runtime.log import get_logger


class PlacementStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a server on another machine."""

    node: str
    """The name of the machine."""
    node_id: str | None = None
    """The engine's name for the machine."""
    id: str
    """The engine's name for the host: a process id, an actor's id, a pod's name."""
    host_pid: int
    """The host's process on that machine."""
    pid: int | None = None
    """The server's process on that machine; None while there is none."""
    restarts: int = 0
    """How many times the host has restarted the server."""
    generation: int = 0
    """The number of the server's process at its host."""


class MCPTransport(ABC):
    """Carries requests to a server. A subclass with these four methods works with `MCPClient`.

    Each call then runs in the caller's thread, as one `send_request`. The subclass decides what happens when several
    threads call at once.
    """

    takes_headers: ClassVar[bool] = False
    """Whether a call may have headers of its own."""

    @abstractmethod
    def connect(self) -> bool:
        """Establish the connection. True if it is up, False if it could not be established."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection; does nothing when there is none."""

    @abstractmethod
    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one JSON-RPC request and return the whole response: a dict with ``"result"`` or ``"error"``.

        Raises RuntimeError when there is no connection, TimeoutError when no answer comes in time, ValueError when the
        answer is not a JSON-RPC response.
        """

    @abstractmethod
    def is_connected(self) -> bool:
        """True while the connection is up."""


@runtime_checkable
class Authorization(Protocol):
    """The login at one server. The transport adds it to requests in its own way. Thread-safe."""

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked to log in."""

    @property
    def secrets(self) -> Iterable[str]:
        """The tokens, which must not be shown."""

    def changed(self) -> bool:
        """Whether there is a login that the server has not refused yet. Quick enough for each call."""

    def log_in(self) -> None:
        """Ask a person to log in. Raises MCPError; may take minutes."""

    def abort(self) -> None:
        """End `log_in`, and refuse it from now on."""

    def reopen(self) -> None:
        """Allow `log_in` again after `abort`."""


@runtime_checkable
class RequestAuthorization(Protocol):
    """The login of one server, for each request over HTTP. Thread-safe."""

    def ready_login(self) -> tuple[bool, str | None]:
        """Whether a request can be sent without waiting, and the header ``Authorization`` for it, if it needs one."""

    def login_flow(self, revision: str | None) -> Generator[str | None, tuple[int, str | None], None]:
        """Yields the header ``Authorization`` for each sending of the request; None if it needs none.

        After each response, the caller sends its status and its header ``WWW-Authenticate`` into the generator. The
        generator may wait, even for a person, and raises MCPError. `revision` is the protocol revision of the request.
        """


class ChannelTransport(MCPTransport):
    """A transport that can open one channel after another: supervision needs one for each start of the server."""

    network_transport: str
    """The name of the transport in OpenTelemetry: "pipe" or "tcp"."""

    @property
    def network(self) -> dict[str, str | int]:
        """The attributes `network.*` and `server.*` of the OpenTelemetry conventions, for all requests."""
        return {"network.transport": self.network_transport}

    authorization: Authorization | None = None
    """The login at the server; None if it has no login."""

    timeout: float
    """Seconds for a request, and for a server to get ready."""

    def prepare(self, owner: object) -> None:
        """Make the next `open` fast, until `release(owner)`. The owner is a supervisor that may start the server."""

    def release(self, owner: object) -> None:
        """`owner` starts no more servers. May be called again, and without `prepare`, after an exception."""

    @abstractmethod
    def open(self, listener: ChannelListener, name: str) -> Channel:
        """Start the server and open a channel to it. All messages of the server go to `listener`.

        `name` is the server's name, for threads and log lines. Raises `StartFailed` or `ConfigError`, and then leaves
        nothing behind.
        """

    def opens_later(self, channel: Channel, then: Callable[[], object]) -> bool:  # noqa: ARG002 - most are open at once
        """Whether nothing can be sent on `channel` yet. If so, `then` is called later, on another thread."""
        return False

    def present(self, channel: Channel) -> None:
        """Note that `channel` gets the calls from now on."""

    def for_replica(self) -> ChannelTransport:
        """The transport for one of several supervisors of the same server; itself if several may use it at once."""
        return self

    def placement(self, channel: Channel) -> PlacementStatus | None:  # noqa: ARG002 - most servers are on no other machine
        """Where the server of `channel` runs; None if it runs here, or has no known place."""
        return None


open_channels: WeakObjects[Channel] = WeakObjects(lambda channel: channel.after_fork())
"""Each channel adds itself, and removes itself when it is closed."""


class InProcessServer(Mapping[str, Any]):
    """A server with its own transport. It is its own configuration entry: ``{"inProcess": server}``.

    So it can be given to a manager, a client or an agent as the entry of its name. ``{**server, "timeout": 5}`` is the
    same server with further keys. Such entries exist in memory only: no file can hold them.
    """

    KEY: ClassVar[str] = "inProcess"
    """The key of the entry that holds the server."""

    clock: Clock | None = None
    """The clock of its clients; None is the system's clock."""

    @abstractmethod
    def transport(self, timeout: float) -> ChannelTransport:
        """A new transport for one client; `timeout` is in seconds."""

    def __getitem__(self, key: str) -> Any:
        if key != self.KEY:
            raise KeyError(key)
        return self

    def __iter__(self) -> Iterator[str]:
        return iter((self.KEY,))

    def __len__(self) -> int:
        return 1

    # Two entries are equal only if they hold the same server object, which is never copied.

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, dict) and len(other) == 1 and other.get(self.KEY) is self)

    __hash__ = object.__hash__

    def __deepcopy__(self, _memo: dict[int, Any]) -> InProcessServer:
        return self


logger = get_logger(__name__)

_CAUSE_SECONDS = 0.5
_DEFAULT_GRACE = 2.0


class StandaloneChannel(Channel, Protocol):
    """A channel that knows whether its server still runs."""

    is_forked: bool

    def is_alive(self) -> bool: ...


class StandaloneTransport(ChannelTransport):
    """The four methods of `MCPTransport` for transports that have channels. Several threads may send requests."""

    def __init__(self, timeout: float, max_pending: int) -> None:
        """`timeout` is in seconds; `max_pending` limits the requests in flight. Raises ValueError."""
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
        """Whether a signal handler or a finalizer has disconnected in the middle of `connect`, in the same thread."""

    @property
    @abstractmethod
    def _label(self) -> str:
        """The server's name in threads and log lines."""

    def _answered(self, connection: Connection, method: str, result: dict[str, Any]) -> None:
        """For transports that need the negotiated protocol."""

    def connect(self) -> bool:
        """Start the server, unless it is running. False if it cannot be started; the log says why.

        Raises RuntimeError if a signal handler or a finalizer calls it while it interrupts `connect`.
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
        """Stop the server and all processes that it started; does nothing when it is not running."""
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
