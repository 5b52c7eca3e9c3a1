"""`Connections`: how many connections an HTTP server has, which of them makes room for another one, and their turns."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable
from enum import Enum
from typing import Protocol

from gaia.serving.options import HttpOptions

STALLED_SECONDS = 30.0
"""How long a client may take nothing at all of a response that no longer fits the buffers."""

TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"

_SWEEP_SECONDS = 1.0
_IDLE_SECONDS = 75.0
"""How long a connection without any request is kept."""

_RESERVE = 32
"""Connections beyond the limit, for probes alone. With more, the oldest is dropped: probes send a request at once."""


class Waiting(Enum):
    """What the server waits for on a connection."""

    NOTHING = "nothing"
    """There is no request."""
    HEAD = "head"
    BODY = "body"
    APPLICATION = "application"


class Connection(Protocol):
    """What `Connections` asks of a connection."""

    loop: asyncio.AbstractEventLoop
    waiting: Waiting
    group: Hashable
    """Whose connection it is: the client's name, once `Connections.identify` was called; before that the address that
    it comes from, or None behind a proxy."""

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not taken."""

    def go_on(self) -> None:
        """Answer some of the requests that wait."""

    def look(self, now: float, seconds: float | None) -> None:
        """Close the connection if the client has been too slow. `seconds` is what it may take; None: for ever."""

    def drop(self) -> None:
        """Close the connection without waiting for what is still to be written."""


class Connections:
    """Those of one server, looked at at intervals. For its event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self._most = options.max_connections
        self._seconds = {
            Waiting.NOTHING: _IDLE_SECONDS,
            Waiting.HEAD: options.head_timeout,
            Waiting.BODY: options.body_timeout,
        }
        self.open: dict[Connection, None] = {}
        """The oldest first."""
        self.counts: Counter[Hashable] = Counter()
        """How many each group has."""
        self.reserve: dict[Connection, None] = {}
        """Connections that found no room, and may only ask how the server is."""
        self.stalled: dict[Connection, None] = {}
        """Those whose client does not read as fast as it is answered."""
        self._timer: asyncio.TimerHandle | None = None
        self._turns: deque[Connection] = deque()
        """Connections with more requests than are answered at once. Each turn of the loop lets one of them go on."""

    def go_on_later(self, connection: Connection) -> None:
        """Have it go on in a later turn of the loop, after the others that are to."""
        self._turns.append(connection)
        if len(self._turns) == 1:
            connection.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        connection = self._turns.popleft()
        if self._turns:
            connection.loop.call_soon(self._next_turn)
        connection.go_on()

    def add(self, connection: Connection) -> bool:
        """False if there is no room, because all connections have complete requests: it is in the reserve then.

        Otherwise one without a complete request makes room, of the group that has the most connections. Connections of
        one address that have not said yet which client they belong to have a quarter of the places.
        """
        if connection.group is not None and self.counts[connection.group] >= max(1, self._most // 4):
            same = (each for each in self.open if each.group == connection.group)
            victim = next((each for each in same if each.waiting is not Waiting.APPLICATION), None)
            if victim is not None:
                victim.drop()
        has_room = len(self.open) < self._most or self._make_room()
        if has_room:
            self.open[connection] = None
            self.counts[connection.group] += 1
        else:
            if len(self.reserve) >= _RESERVE:
                next(iter(self.reserve)).drop()
            self.reserve[connection] = None
        if self._timer is None:
            self._sweep_later(connection.loop)
        return has_room

    def _make_room(self) -> bool:
        for waiting in (Waiting.HEAD, Waiting.NOTHING, Waiting.BODY):
            found = [each for each in self.open if each.waiting is waiting]
            if found:
                max(found, key=lambda each: self.counts[each.group]).drop()
                return True
        return False

    def identify(self, connection: Connection, client: Hashable, most: int | None) -> int | None:
        """Count the connection for this client. Returns None, or how many the client has if it must not have more.

        It may have `most`; None is half of all places. A connection of the client without a request makes room.
        """
        if connection.group == client or connection not in self.open:
            return None
        most = max(1, self._most // 2) if most is None else most
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

    def remove(self, connection: Connection) -> None:
        """It is closed. Harmless if it was removed already."""
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
        # One timer for all: setting one for each step of each request would take longer than reading it.
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in [*self.open, *self.reserve]:
            connection.look(now, self._seconds.get(connection.waiting))
        self._timer = None
        if self.open or self.reserve:
            self._sweep_later(loop)
