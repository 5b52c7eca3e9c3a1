"""`PlacedTransport`: each `open` asks an engine for a host, and then is the channel of an `HttpTransport` to it."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from gaia.http.connection import HttpConnection
from gaia.http.errors import HttpClientError
from gaia.http.io_thread import Signal
from gaia.http.request import HttpSettings
from gaia.http.url import Proxies, Url
from gaia.mcp.errors import MCPError
from gaia.mcp.placement.engine import Address, Engine, Launch, Placed
from gaia.mcp.placement.lease import FIRST_SECONDS, LEASE_PATH, OWNER, Beat, HostState, fingerprints
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.transports.base import PlacementStatus, StandaloneTransport, open_channels
from gaia.mcp.transports.http import HttpTransport
from gaia.mcp.transports.http.channel import HttpChannel
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import Redactor
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_BEATS_PER_LEASE = 3
_FIRST_PAUSE = 0.1
"""Seconds between attempts to reach a host that has just started."""
_LEAVE_SECONDS = 1.0
_JOIN_SECONDS = 10.0


class PlacedTransport(StandaloneTransport):
    """Starts a server on another machine, whenever it is opened."""

    network_transport = "tcp"

    def __init__(
        self, timeout: float, max_pending: int, start_timeout: float, engine: Engine, launch: Callable[[], Launch]
    ) -> None:
        """`launch` is called at each start, and raises ConfigError. `start_timeout` is in seconds."""
        super().__init__(timeout, max_pending)
        self.start_timeout = start_timeout
        self.engine = engine
        self.launch = launch
        self.max_pending = max_pending
        self._hosts = 0
        self._presented: PlacedChannel | None = None
        self._lock = reentrant_lock()
        self._uncertain: dict[Placed, float] = {}
        """Hosts that may still run, each with the time after which their lease has ended. `_lock` owns it."""

    @property
    def _label(self) -> str:
        return "placed"

    @property
    def network(self) -> dict[str, str | int]:
        known: dict[str, str | int] = {**super().network, "network.protocol.name": "http"}
        address = None if self._presented is None else self._presented.address
        if address is None:
            return known
        url = Url.parse(address.url)
        return {
            **known, "server.address": url.host, "server.port": url.port, "gaia.mcp.placement.node": address.node
        }  # fmt: skip

    def open(self, listener: ChannelListener, name: str) -> PlacedChannel:
        channel = PlacedChannel(self, self.launch(), listener, name)
        self._channel = channel
        channel.start()
        return channel

    def release(self, owner: object) -> None:  # noqa: ARG002 - one supervisor has it
        self.engine.close()

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
        )

    # Fencing.

    def left_uncertain(self, placed: Placed, until: float) -> None:
        """`placed` may run until then: a new host is started only after that, or when it has certainly ended."""
        with self._lock:
            self._uncertain[placed] = until

    def wait_for_end(self, channel: PlacedChannel) -> None:
        """Wait until no earlier host runs any more, or `channel` is closed."""
        while not channel.closed.is_open:
            with self._lock:
                waited = dict(self._uncertain)
            for placed, until in waited.items():
                if time.monotonic() >= until or placed.why_ended() is not None or placed.stop(0.0):
                    with self._lock:
                        self._uncertain.pop(placed, None)
            if not waited:
                return
            channel.closed.wait(_FIRST_PAUSE)


class PlacedChannel:
    """See `gaia.mcp.rpc.channel.Channel`. Messages wait until the host has answered the first beats."""

    def __init__(self, transport: PlacedTransport, launch: Launch, listener: ChannelListener, name: str) -> None:
        self.is_forked = False
        self.address: Address | None = None
        self.state: HostState | None = None
        """The last answer of the host; None before the first one."""
        self.closed = Latch()
        self.redact = Redactor([launch.token, *launch.secrets])
        self._transport = transport
        self._launch = launch
        self._listener = listener
        self._name = name
        self._owner = secrets.token_hex(16)
        self._starter = EngineThread(
            self._start, f"mcp-{name}-placing", lambda: self._end("cannot be placed: an error")
        )
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._inner: HttpChannel | None = None
        self._held: list[Outgoing] | None = []
        self._negotiated: NegotiatedProtocol | None = None
        self._placed: Placed | None = None
        self._ending: Ending | None = None
        self._leaving: Signal | None = None
        self._left = Latch()
        self._answered_at = 0.0
        self._fence = 0.0
        """When the lease of the host ends, as far as this program has extended it."""
        open_channels.add(self)

    def start(self) -> None:
        self._starter.start()

    # See `Channel`.

    @property
    def pid(self) -> int | None:
        return None if self.state is None else self.state.pid

    @property
    def session_id(self) -> str | None:
        return None if self._inner is None else self._inner.session_id

    def is_alive(self) -> bool:
        return not self.is_forked and not self.closed.is_open and self.ending(0.0) is None

    def send(self, item: Outgoing) -> bool:
        with self._lock:
            if self._held is not None:
                self._held.append(item)
                return len(self._held) <= self._transport.max_pending
            inner = self._inner
        return inner is None or inner.send(item)

    def cancel(self, notice: Frame) -> None:
        if self._held is None and self._inner is not None:
            self._inner.cancel(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        with self._lock:
            self._negotiated = negotiated
            inner = self._inner
        if inner is not None:
            inner.set_protocol_version(negotiated)

    def ending(self, wait: float) -> Ending | None:
        return self._ending or (None if self._inner is None else self._inner.ending(wait))

    def memory(self) -> int | None:
        return None if self.state is None else self.state.memory

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        if self.is_forked:
            return Ending()
        with self._lock:
            self.closed.open()
            self._held = None
            inner, placed, leaving = self._inner, self._placed, self._leaving
        if inner is not None:
            if leaving is not None and grace > 0 and self._ending is None:
                leaving.set()
                self._left.wait(_LEAVE_SECONDS)
            inner.close(grace if self._launch.is_shared else 0.0)
        if placed is not None and not placed.stop(grace):
            self._transport.left_uncertain(placed, self._fence)
        if self._starter.ident is not None:
            self._starter.join(_JOIN_SECONDS)
        open_channels.discard(self)
        return self.ending(0.0) or Ending(cause="was left")

    def after_fork(self) -> None:
        self.is_forked = True
        if self._placed is not None:
            self._placed.after_fork()

    # The start, on a thread of its own.

    def _start(self) -> None:
        transport, until = self._transport, time.monotonic() + self._transport.start_timeout
        try:
            transport.wait_for_end(self)
            placed = transport.engine.start(self._launch, self._end)
            self._fence = time.monotonic() + max(FIRST_SECONDS, self._launch.lease)
            with self._lock:
                self._placed = placed
                is_closed = self.closed.is_open
            if is_closed:
                # `close` has not seen it.
                if not placed.stop(0.0):
                    transport.left_uncertain(placed, self._fence)
                return
            self.address = address = placed.wait(max(0.0, until - time.monotonic()))
            self._open(address)
        except MCPError as error:
            self._end(f"cannot be started {error.message}")

    def _open(self, address: Address) -> None:
        target = _HostTransport(address, self._name, self._transport.timeout, self._transport.max_pending)
        with self._lock:
            if self.closed.is_open:
                return
            self._inner = inner = target.open(self._listener, self._name)
            self._leaving = leaving = Signal(inner.io)
        inner.spawn(self._keep(inner.new_connection(), target.lease_url, leaving))

    def _opened(self) -> None:
        """The host has answered: send what has waited."""
        with self._lock:
            inner = self._inner
            if self._held is None or inner is None:
                return
            if self._negotiated is not None:
                inner.set_protocol_version(self._negotiated)
            for item in self._held:
                inner.send(item)
            self._held = None

    def _end(self, cause: str) -> None:
        with self._lock:
            if self.closed.is_open or self._ending is not None:
                return
            self._ending = Ending(cause=self.redact(cause))
        self._listener.channel_ended()

    # The lease, on the I/O thread.

    async def _keep(self, connection: HttpConnection, url: Url, leaving: Signal) -> None:
        """Extend the lease until `leaving`, and then give it up."""
        lease, failed = self._launch.lease, 0
        while True:
            try:
                is_first = self.state is None
                await self._beat(connection, url, time.monotonic() + lease / _BEATS_PER_LEASE)
                failed = 0
            except (HttpClientError, OSError) as error:
                failed += 1
                logger.debug("beat_failed", server=self._name, error=self.redact(str(error)))
                if self._held is None and failed >= _BEATS_PER_LEASE:
                    self._end(f"has not answered for {lease:g} s on {self._launch.name}")
                    return
            if self._ending is not None:
                return
            pause = 0.0 if is_first and not failed else lease / _BEATS_PER_LEASE
            if self._held is not None and failed:
                pause = min(pause, _FIRST_PAUSE)
            if await leaving.within(pause):
                break
        try:
            headers = {OWNER: self._owner}
            with await connection.request("DELETE", url, headers, deadline=time.monotonic() + _LEAVE_SECONDS):
                pass
        except (HttpClientError, OSError) as error:
            logger.debug("lease_not_left", server=self._name, error=self.redact(str(error)))
        finally:
            connection.close()
            self._left.open()

    async def _beat(self, connection: HttpConnection, url: Url, deadline: float) -> None:
        state, sent = self.state, time.monotonic()
        if state is None:
            beat = Beat(settings=fingerprints(self._launch.entry, self._token))
        else:
            beat = Beat(clock=state.clock, since=sent - self._answered_at)
            self._fence = sent + self._launch.lease
        headers = {OWNER: self._owner, "Content-Type": "application/json"}
        body = msgspec.json.encode(beat)
        with await connection.request("POST", url, headers, body, deadline=deadline) as response:
            data = await response.read()
        if response.status == 409:
            keys = ", ".join(msgspec.json.decode(data, type=list[str]))
            self._end(f"is shared with other settings; give all programs the same: {keys}")
        elif response.status != 200:
            self._end("ended with its host, which has given it up")
        else:
            self.state, self._answered_at = msgspec.json.decode(data, type=HostState), time.monotonic()
            if state is not None:
                self._opened()

    @property
    def _token(self) -> str:
        assert self.address is not None, "the host is ready"
        return self.address.token


class _HostTransport(HttpTransport):
    """The transport to one host: without the proxies of the environment, and with the host's certificate only."""

    def __init__(self, address: Address, name: str, timeout: float, max_pending: int) -> None:
        super().__init__(
            f"{address.url}/mcp/{quote(name, safe='')}",
            {"Authorization": f"Bearer {address.token}"},
            timeout,
            max_pending=max_pending,
        )
        self._address = address
        self.lease_url = Url.parse(address.url + LEASE_PATH)

    def _settings(self, url: str, headers: Any) -> HttpSettings:  # noqa: ARG002 - it has no credentials
        return HttpSettings(
            headers={"User-Agent": "gaia-mcp", **headers},
            tls=_trusting(self._address.certificate),
            proxies=Proxies(),
            connect_seconds=min(10.0, self.timeout),
            max_bytes=self._max_message_bytes,
        )


def _trusting(certificate: str | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context
