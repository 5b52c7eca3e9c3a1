"""Where a recording is put between servers and their connections (`gaia.testing.record`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaia.mcp.errors import MCPError
from gaia.mcp.rpc.channel import Channel, ChannelListener
from gaia.mcp.rpc.connection import Connection


class Recorder(Protocol):
    """Sees what one start of a server sends and receives, on the threads that do so. Never blocks and never raises."""

    def listener(self, connection: Connection) -> ChannelListener:
        """What the transport gives everything to that comes from the server; it passes all of it on."""

    def channel(self, channel: Channel) -> Channel:
        """What is used in place of the channel that the transport has opened; it passes everything on."""

    def failed(self, error: MCPError) -> None:
        """The transport could not open a channel."""


class Recorders:
    """The recorders of the servers of one manager, or of one client. Starts from now on get what `new` makes."""

    def __init__(self) -> None:
        self.new: Callable[[str], Recorder] | None = None
        """Makes the recorder of one start of a server, by the server's name; None while nothing is recorded. Set by any
        thread, read once for each start."""
