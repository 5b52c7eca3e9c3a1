"""The connections of one server: the idle ones, and limits for the exchanges of each kind."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import IoThread
from gaia.runtime.locks import Latch, reentrant_lock


class IdleConnections:
    """The idle connections of one server. Thread-safe. The last used one, most likely still open, is used next."""

    def __init__(self, new_connection: Callable[[], HttpConnection], io: IoThread, idle_seconds: float) -> None:
        self._new_connection = new_connection
        self._io = io
        self._idle_seconds = idle_seconds
        self._lock = reentrant_lock()
        """Owns everything below, except for taking a connection."""
        self._idle: deque[HttpConnection] = deque()
        self._closed = False
        self._is_watched = False

    def take(self) -> HttpConnection:
        """A connection for the I/O thread, which may have to connect it."""
        connection = self.take_open() or self._new_connection()
        connection.waits_here = False
        return connection

    def take_open(self) -> HttpConnection | None:
        """A connection that is open, as far as is known; None if there is none."""
        while True:
            try:
                # One operation, without the lock: a signal handler that interrupts this thread may wait for the I/O
                # thread, which takes connections too.
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_connected:
                return connection
            connection.close()

    def put(self, connection: HttpConnection) -> None:
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
            # Other threads take connections without the lock.
            while self._idle[0].is_stale:
                stale.append(self._idle.popleft())
        for connection in stale:
            connection.close()
        with self._lock:
            self._is_watched = bool(self._idle) and not self._closed
            if self._is_watched:
                self._watch()


class ConnectionLimit:
    """Limits how many exchanges of one kind use a connection at once. Thread-safe.

    A signal handler may raise at any line on a caller's thread. Then no place and no exchange must be lost, so only the
    I/O thread takes exchanges that wait.
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
        """End an exchange, perhaps with a connection to use again. False, and harmless, if it had no place."""
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
        with self._lock:
            self._closed = True
            self._waiting.clear()
            if not self._users:
                self._all_left.open()

    def join(self, seconds: float) -> bool:
        """After `close`: wait until no exchange uses a connection; False if one still does after `seconds`."""
        return self._all_left.wait(seconds)

    def _begin_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or len(self._users) >= self._limit:
                    return
                user, begin = self._waiting.popleft()
                self._users[user] = None
            begin()
