"""The connections of one server: those that are idle, and how many exchanges of a kind may use one at once."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import IoThread
from gaia.runtime.locks import Latch, reentrant_lock


class IdleConnections:
    """The connections of one server that no request uses. Thread-safe.

    The connection that was used last is used next, because it is most likely still open.
    """

    def __init__(self, new_connection: Callable[[], HttpConnection], io: IoThread, idle_seconds: float) -> None:
        self._new_connection = new_connection
        self._io = io
        self._idle_seconds = idle_seconds
        self._lock = reentrant_lock()
        """Owns what is below, but for taking a connection."""
        self._idle: deque[HttpConnection] = deque()
        self._closed = False
        self._is_watched = False

    def take(self) -> HttpConnection:
        """One for the I/O thread: it may have to connect."""
        connection = self.take_open() or self._new_connection()
        connection.waits_here = False
        return connection

    def take_open(self) -> HttpConnection | None:
        """One that is connected to the server, as far as that is known; None if there is none."""
        while True:
            try:
                # One operation, without the lock: a signal handler that interrupts this thread may wait for the I/O
                # thread, which comes here too.
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_connected:
                return connection
            connection.close()

    def put(self, connection: HttpConnection) -> None:
        """A request has left the connection."""
        with self._lock:
            keeps = not self._closed and connection.is_kept
            watches = keeps and not self._is_watched
            if keeps:
                self._idle.append(connection)
                self._is_watched = True
        if not keeps:
            connection.close()
        elif watches:
            self._io.post(self._watch)

    def close(self) -> None:
        """Close all, and those that are put back later, too."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _watch(self) -> None:
        self._io.call_later(self._idle_seconds, self._close_stale)

    def _close_stale(self) -> None:
        stale = []
        with self._lock, contextlib.suppress(IndexError):
            # Others take connections without the lock.
            while self._idle[0].is_stale:
                stale.append(self._idle.popleft())
        for connection in stale:
            connection.close()
        with self._lock:
            self._is_watched = bool(self._idle) and not self._closed
            if self._is_watched:
                self._watch()


class ConnectionLimit:
    """Exchanges of one kind: at most so many of them use a connection at once. Thread-safe.

    A signal handler may raise at any line that the thread of a caller runs through. So that no place and no exchange is
    lost then, only the I/O thread takes exchanges that wait.
    """

    def __init__(self, limit: int, connections: IdleConnections, io: IoThread) -> None:
        self._limit = limit
        self._connections = connections
        self._io = io
        self._lock = reentrant_lock()
        self._users: dict[object, None] = {}
        self._waiting: deque[tuple[object, Callable[[], object]]] = deque()
        self._closed = False
        self._all_left = Latch()
        """Opened when nothing uses a connection any more, after `close`."""

    def enter(self, user: object, begin: Callable[[], object]) -> None:
        """Have the I/O thread call `begin` as soon as `user` may take a connection. Dropped after `close`."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append((user, begin))
        self._io.post(self._begin_waiting)

    def borrow(self, user: object) -> HttpConnection | None:
        """An idle connection for the calling thread. None if there is none, or others are first."""
        with self._lock:
            if self._closed or len(self._waiting) + len(self._users) >= self._limit:
                return None
            self._users[user] = None
        connection = self._connections.take_open()
        if connection is None:
            self.leave(user, None)
        return connection

    def leave(self, user: object, connection: HttpConnection | None) -> bool:
        """The exchange has ended, perhaps with a connection to use again. False, and harmless, if it was not there."""
        with self._lock:
            had_place = user in self._users
            self._users.pop(user, None)
            if self._closed and not self._users:
                self._all_left.open()
        if had_place and connection is not None:
            self._connections.put(connection)
        if self._waiting:
            self._io.post(self._begin_waiting)
        return had_place

    def close(self) -> None:
        """Begin nothing any more, and forget what waits."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            if not self._users:
                self._all_left.open()

    def join(self, seconds: float) -> bool:
        """After `close`: wait until nothing uses a connection any more; False if something does after `seconds`."""
        return self._all_left.wait(seconds)

    def _begin_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or len(self._users) >= self._limit:
                    return
                user, begin = self._waiting.popleft()
                self._users[user] = None
            begin()
