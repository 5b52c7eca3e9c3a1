"""`DirectConnections`: the open connections of a server that answers by callbacks (`gaia.serving.direct_http`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Protocol

from gaia.serving.open_connections import OpenConnections, Waiting
from gaia.serving.options import HttpOptions

_SWEEP_SECONDS = 1.0
_IDLE_SECONDS = 75.0
"""How long a connection without any request is kept."""

_RESERVE = 32
"""Connections beyond the limit, for probes alone. With more, the oldest is dropped: probes send a request at once."""


class DirectConnection(Protocol):
    """One connection."""

    loop: asyncio.AbstractEventLoop
    waiting: Waiting
    group: Hashable
    """Whose connection it is: the client's name, once `DirectConnections.identify` was called; before that the address
    that it comes from, or None behind a proxy."""

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not taken."""

    def go_on(self) -> None:
        """Answer some of the requests that wait."""

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
        self.reserve: dict[DirectConnection, None] = {}
        """Connections that found no room, and may only ask how the server is."""
        self.stalled: dict[DirectConnection, None] = {}
        """Those whose client does not read as fast as it is answered."""
        self._timer: asyncio.TimerHandle | None = None
        self._turns: deque[DirectConnection] = deque()
        """Connections with more requests than are answered at once. Each turn of the loop lets one of them go on."""

    def go_on_later(self, connection: DirectConnection) -> None:
        """Have it go on in a later turn of the loop, after the others that are to."""
        self._turns.append(connection)
        if len(self._turns) == 1:
            connection.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        connection = self._turns.popleft()
        if self._turns:
            connection.loop.call_soon(self._next_turn)
        connection.go_on()

    def add(self, connection: DirectConnection) -> bool:
        """False if there is no room: the connection is in the reserve then.

        Connections of one address that have not said yet which client they belong to have a quarter of the places.
        """
        if connection.group is not None and self.counts[connection.group] >= max(1, self.most // 4):
            same = (each for each in self.open if each.group == connection.group)
            victim = next((each for each in same if each.waiting is not Waiting.APPLICATION), None)
            if victim is not None:
                victim.drop()
        has_room = super().add(connection)
        if not has_room:
            if len(self.reserve) >= _RESERVE:
                next(iter(self.reserve)).drop()
            self.reserve[connection] = None
        if self._timer is None:
            self._sweep_later(connection.loop)
        return has_room

    def identify(self, connection: DirectConnection, client: Hashable, most: int | None) -> int | None:
        """Count the connection for this client. Returns None, or how many the client has if it must not have more.

        It may have `most`; None is half of all places. A connection of the client without a request makes room.
        """
        if connection.group == client or connection not in self.open:
            return None
        most = max(1, self.most // 2) if most is None else most
        if self.counts[client] >= most:
            own = (each for each in self.open if each.group == client)
            unused = next((each for each in own if each.waiting is Waiting.NOTHING), None)
            if unused is None:
                return most
            unused.drop()
        self._count_less(connection.group)
        connection.group = client
        self.counts[client] += 1
        return None

    def unread_of(self, group: Hashable) -> int:
        """Bytes of responses that wait for a client, on all of its connections."""
        # Seldom any.
        return sum(each.unread for each in self.stalled if each.group == group) if self.stalled else 0

    def remove(self, connection: DirectConnection) -> None:
        super().remove(connection)
        self.reserve.pop(connection, None)
        self.stalled.pop(connection, None)
        if not self.open and not self.reserve and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # One timer for all: setting one for each step of each request would take longer than reading it.
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in [*self.open, *self.reserve]:
            connection.look(now, self._seconds.get(connection.waiting))
        self._timer = None
        if self.open or self.reserve:
            self._sweep_later(loop)
