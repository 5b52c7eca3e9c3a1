"""The common parts of servers without a process: a channel, and its transport."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending, Frame
from gaia.mcp.transports.base import StandaloneChannel, StandaloneTransport
from gaia.runtime.locks import reentrant_lock

_MAX_PENDING = 1024


class InMemoryChannel(StandaloneChannel):
    """One start of a server in this process. Thread-safe."""

    pid = None

    def __init__(self, listener: ChannelListener) -> None:
        self.is_forked = False
        self._listener = listener
        self._lock = reentrant_lock()
        """Guards the changing attributes. Not held while a message is delivered."""
        self._ending: Ending | None = None

    def cancel(self, notice: Frame) -> None:
        self.send(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:  # noqa: ARG002 - one encoding for all
        return

    def redact(self, text: str) -> str:
        return text

    def ending(self, wait: float) -> Ending | None:  # noqa: ARG002 - it ends at once, or not at all
        return self._ending

    def memory(self) -> int | None:
        return None

    def after_fork(self) -> None:
        self.is_forked = True


class InMemoryTransport(StandaloneTransport):
    """Starts a server in this process for one client, any number of times."""

    network_transport = "pipe"

    def __init__(
        self,
        name: str,
        timeout: float,
        start: Callable[[ChannelListener, str], InMemoryChannel],
        again: Callable[[], InMemoryTransport] | None = None,
    ) -> None:
        """`again` makes another one for a replica."""
        super().__init__(timeout, _MAX_PENDING)
        self._name = name
        self._start = start
        self._again = again

    def __repr__(self) -> str:
        return f"<transport of {self._name}>"

    @property
    def _label(self) -> str:
        return self._name

    @property
    def channel(self) -> InMemoryChannel | None:
        channel = self._channel
        return channel if isinstance(channel, InMemoryChannel) and channel.is_alive() else None

    def present(self, channel: Channel) -> None:
        if isinstance(channel, InMemoryChannel):
            self._channel = channel

    def for_replica(self) -> InMemoryTransport:
        return self if self._again is None else self._again()

    def open(self, listener: ChannelListener, name: str) -> InMemoryChannel:
        channel = self._start(listener, name)
        self._channel = self.channel or channel
        return channel
