"""`DirectConnections`: the open connections of a server that answers by callbacks (`gaia.serving.direct_http`)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gaia.serving.open_connections import OpenConnections, Waiting
from gaia.serving.options import HttpOptions

__all__ = ["DirectConnection", "DirectConnections"]

_SWEEP_SECONDS = 1.0
_IDLE_SECONDS = 75.0
"""How long a connection without any request is kept."""


class DirectConnection(Protocol):
    """One connection."""

    loop: asyncio.AbstractEventLoop
    waiting: Waiting

    def look(self, now: float, seconds: float | None) -> None:
        """Close the connection if the client has been too slow. `seconds` is what it may take; None: for ever."""

    def drop(self) -> None:
        """Close the connection without waiting for what is still to be written."""


class DirectConnections(OpenConnections[DirectConnection]):
    """Those of one server, looked at at intervals. For its event loop."""

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(options.max_connections)
        self._seconds = {
            Waiting.NOTHING: _IDLE_SECONDS,
            Waiting.HEAD: options.head_timeout,
            Waiting.BODY: options.body_timeout,
        }
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: DirectConnection) -> bool:
        has_room = super().add(connection)
        if has_room and self._timer is None:
            self._sweep_later(connection.loop)
        return has_room

    def remove(self, connection: DirectConnection) -> None:
        super().remove(connection)
        if not self.open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # One timer for all: setting one for each step of each request would take longer than reading it.
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self.open):
            connection.look(now, self._seconds.get(connection.waiting))
        self._timer = None
        if self.open:
            self._sweep_later(loop)
