"""When the parts of a connection happened, seen from between the client and its transport."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Channel, ChannelListener, Outgoing
from gaia.mcp.client.transports.base import ChannelTransport

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient

__all__ = ["Stopwatch"]


class Stopwatch:
    """Readings of ``time.perf_counter()``; None for what has not happened."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.opened: float | None = None
        """The server's process had been started."""
        self.listing: float | None = None
        """Its tools were asked for, so the handshake was over."""
        self.pid: int | None = None

    @classmethod
    def on(cls, client: MCPClient) -> Stopwatch:
        """Watch a client that is about to connect for the first time."""
        watch = cls()
        if isinstance(client.transport, ChannelTransport):
            client.transport = cast(ChannelTransport, _WatchedTransport(client.transport, watch))
        return watch


@ChannelTransport.register
class _WatchedTransport:
    """Another transport, but for what is watched. Nothing is copied, so it is complete whatever transports have."""

    def __init__(self, transport: ChannelTransport, watch: Stopwatch) -> None:
        self._transport = transport
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def open(self, listener: ChannelListener, name: str) -> Channel:
        channel = self._transport.open(listener, name)
        self._watch.opened = time.perf_counter()
        self._watch.pid = channel.pid
        return cast(Channel, _WatchedChannel(channel, self._watch))


class _WatchedChannel:
    def __init__(self, channel: Channel, watch: Stopwatch) -> None:
        self._channel = channel
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, item: Outgoing) -> bool:
        if self._watch.listing is None and isinstance(item, Call) and item.method == "tools/list":
            self._watch.listing = time.perf_counter()
        return self._channel.send(item)
