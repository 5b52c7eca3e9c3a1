"""`PlacedTransport`: each `open` asks an engine for a host, and then is the channel of an `HttpTransport` to it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import quote

from gaia.http.io_thread import Signal
from gaia.http.request import HttpSettings
from gaia.http.url import Url
from gaia.mcp.errors import MCPError, StartFailed
from gaia.mcp.placement.engine import Address, Engine, Launch, Placed
from gaia.mcp.placement.heartbeat import Heartbeat
from gaia.mcp.placement.lease import FIRST_SECONDS, HostState
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.transports.base import ChannelTransport, PlacementStatus, open_channels
from gaia.mcp.transports.http import HttpTransport
from gaia.mcp.transports.http.channel import HttpChannel
from gaia.runtime.clock import require_seconds
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import Redactor
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_POLL_SECONDS = 0.1
_SOON_SECONDS = 0.02
_LEAVE_SECONDS = 1.5
_END_SECONDS = 3.0
"""How long a host takes to end its server after the server's own grace period."""
_JOIN_SECONDS = 10.0


class PlacedTransport(ChannelTransport):
    """Starts a server on another machine, whenever it is opened. Used by `MCPClient` only."""

    network_transport = "tcp"

    def __init__(
        self, engine: Callable[[], Engine], launch: Callable[[], Launch], timeout: float, start_timeout: float
    ) -> None:
        """`launch` is called at each start, and raises ConfigError. Times are in seconds; ValueError if they are not.

        `start_timeout` is for the start of the host and its server. `engine` is called on another thread.
        """
        require_seconds("timeout", timeout)
        self.timeout = timeout
        self.start_timeout = start_timeout
        self.launch = launch
        self._new_engine = engine
        self._engine: Engine | None = None
        self._users: set[object] = set()
        """Supervisors, and channels that are not closed. `_lock` owns it."""
        self._presented: PlacedChannel | None = None
        self._lock = reentrant_lock()
        self._uncertain: dict[Placed, float] = {}
        """Hosts that may still run, each with the time when its lease has ended. `_lock` owns it."""

    @property
    def network(self) -> dict[str, str | int]:
        known: dict[str, str | int] = {**super().network, "network.protocol.name": "http"}
        address = None if self._presented is None else self._presented.address
        if address is not None:
            url = Url.parse(address.url)
            known |= {"server.address": url.host, "server.port": url.port, "gaia.mcp.placement.node": address.node}
        return known

    def open(self, listener: ChannelListener, name: str) -> PlacedChannel:
        channel = PlacedChannel(self, self.launch(), listener, name)
        self.prepare(channel)
        channel.start()
        return channel

    def opens_later(self, channel: Channel, then: Callable[[], object]) -> bool:
        assert isinstance(channel, PlacedChannel), "this transport has opened it"
        return channel.opens_later(then)

    def engine(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._new_engine()
            return self._engine

    def prepare(self, owner: object) -> None:
        with self._lock:
            self._users.add(owner)

    def release(self, owner: object) -> None:
        with self._lock:
            self._users.discard(owner)
            engine = None if self._users else self._engine
        if engine is not None:
            engine.close()

    def for_replica(self) -> PlacedTransport:
        """Another one, because a replica must wait for the end of its own earlier hosts, and of no other's."""
        return PlacedTransport(self._new_engine, self.launch, self.timeout, self.start_timeout)

    def present(self, channel: Channel) -> None:
        assert isinstance(channel, PlacedChannel), "this transport has opened it"
        self._presented = channel

    def placement(self, channel: Channel) -> PlacementStatus | None:
        assert isinstance(channel, PlacedChannel), "this transport has opened it"
        address, state = channel.address, channel.state
        if address is None or state is None:
            return None
        return PlacementStatus(
            node=address.node,
            node_id=address.node_id,
            id=address.id,
            host_pid=address.pid,
            pid=state.pid,
            restarts=state.restarts,
            generation=state.generation,
        )

    # Fencing.

    def left_uncertain(self, placed: Placed, until: float) -> None:
        """`placed` may run until then: the next host is started only after that, or when it has certainly ended."""
        with self._lock:
            self._uncertain[placed] = until

    def wait_for_ends(self, is_closed: Latch) -> None:
        """Wait until no earlier host runs any more, or the channel that waits is closed."""
        while not is_closed.is_open:
            with self._lock:
                self._uncertain = {
                    placed: until
                    for placed, until in self._uncertain.items()
                    if time.monotonic() < until and placed.why_ended() is None
                }
                waited = list(self._uncertain)
            ended = [placed.stop(0.0) for placed in waited]
            if all(ended):
                return
            is_closed.wait(_POLL_SECONDS)

    # See `MCPTransport`.

    def connect(self) -> bool:
        _refuse()

    def disconnect(self) -> None:
        """Does nothing: it is never connected."""

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:  # noqa: ARG002
        _refuse()

    def is_connected(self) -> bool:
        return False


def _refuse() -> NoReturn:
    raise RuntimeError("a placed server is used with MCPClient or MCPClientManager")


class PlacedChannel:
    """See `gaia.mcp.rpc.channel.Channel`, and `heartbeat.Reaction`. Nothing is sent before it is open."""

    def __init__(self, transport: PlacedTransport, launch: Launch, listener: ChannelListener, name: str) -> None:
        self.is_forked = False
        self.address: Address | None = None
        self.redact = Redactor([launch.token, *launch.secrets])
        self._transport = transport
        self._launch = launch
        self._listener = listener
        self._name = name
        self._closed = Latch()
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._on_open: Callable[[], object] | None = None
        self._is_open = False
        self._ending: Ending | None = None
        self._placed: Placed | None = None
        self._fence = 0.0
        """When a host that has never heard of this program has ended."""
        self._inner: HttpChannel | None = None
        self._heartbeat: Heartbeat | None = None
        self._leaving: Signal | None = None
        self._answered = Latch()
        """Opened when the present host has answered or is lost."""
        open_channels.add(self)
        self._starter = EngineThread(self._start, f"mcp-{name}-placing", lambda: self._end("cannot be placed"))

    def start(self) -> None:
        """Begin to start a host. Raises StartFailed if the system starts no thread."""
        try:
            self._starter.start()
        except RuntimeError as error:
            self.close(0.0)
            raise StartFailed(f"server {self._name!r} cannot be placed: {error}") from error

    def opens_later(self, then: Callable[[], object]) -> bool:
        """See `ChannelTransport.opens_later`."""
        with self._lock:
            self._on_open = then
            return not self._is_open

    @property
    def state(self) -> HostState | None:
        """The last answer of the host; None before the first one."""
        heartbeat = self._heartbeat
        return None if heartbeat is None else heartbeat.state

    # See `Channel`.

    @property
    def pid(self) -> int | None:
        state = self.state
        return None if state is None else state.pid

    @property
    def session_id(self) -> str | None:
        inner = self._inner
        return None if inner is None else inner.session_id

    def send(self, item: Outgoing) -> bool:
        inner = self._inner
        return inner is None or inner.send(item)

    def cancel(self, notice: Frame) -> None:
        if (inner := self._inner) is not None:
            inner.cancel(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        if (inner := self._inner) is not None:
            inner.set_protocol_version(negotiated)

    def ending(self, wait: float) -> Ending | None:
        inner = self._inner
        return self._ending or (inner.ending(wait) if self._is_open and inner is not None else None)

    def memory(self) -> int | None:
        state = self.state
        return None if state is None else state.memory

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        if self.is_forked:
            return Ending()
        with self._lock:
            self._closed.open()
            inner, placed, heartbeat, leaving = self._inner, self._placed, self._heartbeat, self._leaving
        self._answered.open()
        if heartbeat is not None and leaving is not None and grace > 0 and self._ending is None:
            leaving.set()
            heartbeat.left.wait(_LEAVE_SECONDS)
        # A shared host that this program has just begun to start has no other owner.
        was_last = not self._launch.is_shared or heartbeat is None or heartbeat.was_last
        if inner is not None:
            # The session of a host that ends needs no end of its own.
            inner.close(0.0 if was_last else grace)
        if placed is not None and was_last:
            # A host that does not answer does not end by itself, either.
            self._stop(placed, grace + _END_SECONDS if grace > 0 and self._ending is None else 0.0)
        if self._starter.ident is not None:
            self._starter.join(_JOIN_SECONDS)
        open_channels.discard(self)
        self._transport.release(self)
        return self.ending(0.0) or Ending(cause="was left")

    def _stop(self, placed: Placed, grace: float) -> None:
        # Another shared host cannot be started while this one runs.
        if not placed.stop(grace) and not self._launch.is_shared:
            heartbeat = self._heartbeat
            self._transport.left_uncertain(placed, self._fence if heartbeat is None else heartbeat.fence or self._fence)

    def after_fork(self) -> None:
        self.is_forked = True
        if self._placed is not None:
            self._placed.after_fork()

    # The start, on a thread of its own.

    def _start(self) -> None:
        until = time.monotonic() + self._transport.start_timeout
        try:
            while not self._closed.is_open and self._ending is None and not self._is_open:
                self._transport.wait_for_ends(self._closed)
                if not self._closed.is_open:
                    self._place(until)
        except MCPError as error:
            self._end(f"cannot be started: {error.message}")

    def _place(self, until: float) -> None:
        """Start a host, and wait until it has answered. A shared host may end at that moment."""
        placed = self._transport.engine().start(self._launch, self._end)
        with self._lock:
            self._placed, self._answered = placed, Latch()
            self._fence = time.monotonic() + max(FIRST_SECONDS, self._launch.lease)
            is_closed = self._closed.is_open
        if is_closed:
            # `close` has not seen it.
            self._stop(placed, 0.0)
            return
        self.address = address = placed.wait(max(0.0, until - time.monotonic()))
        self.redact = Redactor([address.token, *self._launch.secrets])
        target = _HostTransport(address, self._launch, self._transport.timeout)
        with self._lock:
            if self._closed.is_open:
                return
            self._inner = inner = target.open(self._listener, self._name)
            self._leaving = leaving = Signal(inner.io)
            self._heartbeat = heartbeat = Heartbeat(self._launch, address.url, address.token, self, leaving)
        inner.spawn(heartbeat.run(inner.new_connection()))
        if not self._answered.wait(max(0.0, until - time.monotonic())):
            self._end(f"cannot be reached on {address.node}: {heartbeat.failure}")
        elif not (self._is_open or self._closed.is_open):
            inner.close(0.0)
            ended_by = min(until, time.monotonic() + _END_SECONDS)
            while placed.why_ended() is None and time.monotonic() < ended_by and not self._closed.wait(_SOON_SECONDS):
                pass

    # See `heartbeat.Reaction`.

    def host_answered(self) -> None:
        with self._lock:
            self._is_open = True
            then = self._on_open
        self._answered.open()
        if (address := self.address) is not None:
            logger.info("server_placed", server=self._name, node=address.node, host=address.id)
        if then is not None:
            then()

    def host_unreachable(self) -> None:
        placed = self._placed
        if not self._is_open and placed is not None and (why := placed.why_ended()) is not None:
            self.host_lost(why)

    def host_lost(self, cause: str) -> None:
        heartbeat = self._heartbeat
        if self._is_open or not self._launch.is_shared or heartbeat is None or heartbeat.is_refused:
            self._end(cause)
        self._answered.open()

    def _end(self, cause: str) -> None:
        with self._lock:
            if self._closed.is_open or self._ending is not None:
                return
            self._ending = Ending(cause=self.redact(cause))
        self._answered.open()
        self._listener.channel_ended()


class _HostTransport(HttpTransport):
    """The transport to one host: without the proxies of the environment, and with the host's certificate only."""

    def __init__(self, address: Address, launch: Launch, timeout: float) -> None:
        url, headers = f"{address.url}/mcp/{quote(launch.name, safe='')}", {"Authorization": f"Bearer {address.token}"}
        super().__init__(url, headers, timeout, expand=lambda: (url, headers, launch.secrets), **launch.limits)
        self._certificate = address.certificate

    def _settings(self, url: str, headers: Any) -> HttpSettings:  # noqa: ARG002 - it has no credentials
        tls = None
        if self._certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname = False
            tls.load_verify_locations(cadata=self._certificate)
        return HttpSettings(
            headers={"User-Agent": "gaia-mcp", **headers},
            tls=tls,
            connect_seconds=min(10.0, self.timeout),
            max_bytes=self._max_message_bytes,
        )
