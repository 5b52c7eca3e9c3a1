"""What can be put into a supervisor's mailbox."""

from __future__ import annotations

from typing import Any

import msgspec

from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.exchange_runner import ExchangeRunner
from gaia.mcp.client.supervision.timers import Waiting
from gaia.mcp.errors import MCPError

__all__ = [
    "Answered",
    "Closed",
    "Ended",
    "Expired",
    "Letter",
    "LoggedIn",
    "Notified",
    "Start",
    "Stop",
    "SubscriptionsChanged",
    "Wanted",
    "Watch",
]


class Start(msgspec.Struct, frozen=True):
    pass


class Stop(msgspec.Struct, frozen=True):
    pass


class Wanted(msgspec.Struct, frozen=True):
    """A call came for a server that had exited, or that may let us in by now."""


class LoggedIn(msgspec.Struct, frozen=True):
    """A person has logged in at the server, or that came to nothing."""

    error: MCPError | None


class Ended(msgspec.Struct, frozen=True):
    """The server's output ended, its process exited, or it closed its input."""

    connection: Connection


class Closed(msgspec.Struct, frozen=True):
    """The lost server has been ended completely."""

    ending: Ending


class Answered(msgspec.Struct, frozen=True):
    """A call of one of the supervisor's own exchanges has ended."""

    runner: ExchangeRunner[Any]
    call: Call


class Watch(msgspec.Struct, frozen=True):
    """Enforce the deadline of something that no thread waits for."""

    waiting: Waiting


class Expired(msgspec.Struct, frozen=True):
    """A call that was handed to the server timed out."""

    call: Call


class SubscriptionsChanged(msgspec.Struct, frozen=True):
    """The client wants to hear other things of the server than before."""


class Notified(msgspec.Struct, frozen=True):
    connection: Connection
    notification: Notification


Letter = (
    Start | Stop | Wanted | LoggedIn | Ended | Closed | Answered | Watch | Expired | SubscriptionsChanged | Notified
)
