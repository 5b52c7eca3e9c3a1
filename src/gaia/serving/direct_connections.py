"""`DirectConnections`: the open connections of a server that answers by callbacks (`gaia.serving.direct_http`)."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol

from gaia.serving.options import HttpOptions

__all__ = ["DirectConnection", "DirectConnections", "Waiting"]

_SWEEP_SECONDS = 1.0
_IDLE_SECONDS = 75.0
"""How long a connection without any request is kept."""


class Waiting(Enum):
    """What the server waits for on a connection."""

    NOTHING = "nothing"
    """There is no request."""
    HEAD = "head"
    BODY = "body"
    APPLICATION = "application"


class DirectConnection(Protocol):
    """One connection."""

    loop: asyncio.AbstractEventLoop
    waiting: Waiting

    def look(self, now: float, seconds: float | None) -> None:
        """Close the connection if the client has been too slow. `seconds` is what it may take; None: for ever."""

    def drop(self) -> None:
        """Close the connection without waiting for what is still to be written."""


class DirectConnections:
    """The open connections of one server, oldest first. For its event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self._seconds = {
            Waiting.NOTHING: _IDLE_SECONDS,
            Waiting.HEAD: options.head_timeout,
            Waiting.BODY: options.body_timeout,
        }
        self._max = options.max_connections
        self._open: dict[DirectConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: DirectConnection) -> bool:
        """False if there are too many, all with complete requests. Otherwise one that is not that far makes room."""
        if len(self._open) >= self._max:
            for waiting in (Waiting.HEAD, Waiting.NOTHING, Waiting.BODY):
                victim = next((each for each in self._open if each.waiting is waiting), None)
                if victim is not None:
                    victim.drop()
                    break
            else:
                return False
        self._open[connection] = None
        if self._timer is None:
            self._sweep_later(connection.loop)
        return True

    def remove(self, connection: DirectConnection) -> None:
        self._open.pop(connection, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # One timer for all: setting one for each step of each request would take longer than reading it.
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._open):
            connection.look(now, self._seconds.get(connection.waiting))
        self._timer = None
        if self._open:
            self._sweep_later(loop)
