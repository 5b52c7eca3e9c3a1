"""`Connections`: the connections of an HTTP server, their number, and which connection makes room for another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from enum import Enum
from typing import Protocol

from gaia.serving.options import HttpOptions

STALLED_SECONDS = 30.0
"""How long a client may read nothing of a response that no longer fits the buffers."""

TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"

_SWEEP_SECONDS = 1.0
_IDLE_SECONDS = 75.0

_RESERVE = 32
"""Connections beyond the limit, for probes only, which send their request at once. With more, the oldest is dropped."""


class Phase(Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"


class Connection(Protocol):
    loop: asyncio.AbstractEventLoop
    phase: Phase
    group: Hashable
    """The owner: the client's name after `Connections.identify`; before that the address, or None behind a proxy."""

    @property
    def unread(self) -> int: ...

    def look(self, now: float, seconds: float | None) -> None: ...

    def drop(self) -> None: ...


class Connections:
    """The connections of one server, checked at intervals. For its event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self._most = options.max_connections
        self._seconds = {Phase.IDLE: _IDLE_SECONDS, Phase.HEAD: options.head_timeout, Phase.BODY: options.body_timeout}
        self.open: dict[Connection, None] = {}
        """Oldest first."""
        self.counts: Counter[Hashable] = Counter()
        self.reserve: dict[Connection, None] = {}
        """Connections beyond the limit, which may only send probes."""
        self.stalled: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> bool:
        """Add a connection. False if every connection has a complete request; the new one is then in the reserve.

        To make room, a connection without a complete request is dropped, from the group with the most connections.
        Connections from one address without an identified client may take a quarter of the places.
        """
        group = connection.group
        if group is not None and self.counts[group] >= max(1, self._most // 4):
            unused = (one for one in self.open if one.group == group and one.phase is not Phase.ANSWER)
            if (victim := next(unused, None)) is not None:
                victim.drop()
        has_room = len(self.open) < self._most or self._make_room()
        if has_room:
            self.open[connection] = None
            self.counts[group] += 1
        else:
            if len(self.reserve) >= _RESERVE:
                next(iter(self.reserve)).drop()
            self.reserve[connection] = None
        if self._timer is None:
            self._sweep_later(connection.loop)
        return has_room

    def _make_room(self) -> bool:
        for phase in (Phase.HEAD, Phase.IDLE, Phase.BODY):
            found = [each for each in self.open if each.phase is phase]
            if found:
                max(found, key=lambda each: self.counts[each.group]).drop()
                return True
        return False

    def identify(self, connection: Connection, client: Hashable, most: int | None) -> int | None:
        """Count the connection for this client. Returns None, or the client's limit if it has reached the limit.

        The client may have `most` connections; None is half of all places. To make room, the client's own connection
        without a request is dropped.
        """
        if connection.group == client or connection not in self.open:
            return None
        most = max(1, self._most // 2) if most is None else most
        if self.counts[client] >= most:
            unused = (one for one in self.open if one.group == client and one.phase is Phase.IDLE)
            if (victim := next(unused, None)) is None:
                return most
            victim.drop()
        self._count_less(connection.group)
        connection.group = client
        self.counts[client] += 1
        return None

    def unread_of(self, group: Hashable) -> int:
        # Usually no connection is stalled.
        return sum(each.unread for each in self.stalled if each.group == group) if self.stalled else 0

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection. May be repeated."""
        if connection in self.open:
            del self.open[connection]
            self._count_less(connection.group)
        self.reserve.pop(connection, None)
        self.stalled.pop(connection, None)
        if not self.open and not self.reserve and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count_less(self, group: Hashable) -> None:
        self.counts[group] -= 1
        if not self.counts[group]:
            del self.counts[group]

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # One timer for all connections, because setting one for each step of a request takes longer than reading the
        # request.
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in [*self.open, *self.reserve]:
            connection.look(now, self._seconds.get(connection.phase))
        self._timer = None
        if self.open or self.reserve:
            self._sweep_later(loop)
