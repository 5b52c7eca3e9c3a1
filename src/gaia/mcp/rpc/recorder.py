"""The hook between servers and their connections that recordings use (`gaia.testing.record`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaia.mcp.errors import MCPError
from gaia.mcp.rpc.channel import Channel, ChannelListener
from gaia.mcp.rpc.connection import Connection


class Recorder(Protocol):
    """Records what one start of a server sends and receives, on the threads that do so. Never blocks, never raises."""

    def listener(self, connection: Connection) -> ChannelListener:
        """The listener for the transport. It passes everything that the server sends on to `connection`."""

    def channel(self, channel: Channel) -> Channel:
        """The channel for the connection. It passes everything on to the channel that the transport has opened."""

    def failed(self, error: MCPError) -> None:
        """The transport could not open a channel."""


class Recorders:
    """The recorders of the servers of one manager or one client. Each later start of a server gets one from `new`."""

    def __init__(self) -> None:
        self.new: Callable[[str], Recorder] | None = None
        """Makes the recorder for one start of a server, from the server's name; None while nothing is recorded. Any
        thread may set it; each start reads it once."""
