"""The connections of one server: those that are idle, and how many requests of a kind may use one at once."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial

from gaia.http import HttpConnection
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.threads import DaemonPool, PoolExhausted

_BORROWED_SECONDS = 0.2
"""How long those that have borrowed a connection are waited for at the end. They are interrupted by then."""

Job = Callable[[HttpConnection], object]
"""Must not raise."""


class IdleConnections:
    """The connections of one server that no request uses. Thread-safe.

    The connection that was used last is used next, because it is most likely still open.
    """

    def __init__(self, new_connection: Callable[[], HttpConnection]) -> None:
        self._new_connection = new_connection
        self._lock = reentrant_lock()
        """Owns the two below, but for taking a connection."""
        self._idle: deque[HttpConnection] = deque()
        """Those that were used last are at the end."""
        self._closed = False

    def take(self) -> HttpConnection:
        """One for the calling thread: it may have to connect."""
        return self.take_open() or self._new_connection()

    def take_open(self) -> HttpConnection | None:
        """One that is connected to the server, as far as that is known; None if there is none."""
        while True:
            try:
                # One operation, without the lock: a signal handler that interrupts this thread may wait for a thread of
                # the pool, which comes here too.
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_connected:
                return connection
            connection.close()

    def put(self, connection: HttpConnection) -> None:
        """A request has left the connection. Those that nothing has used for too long are closed."""
        with self._lock:
            if not self._closed and connection.is_kept:
                self._idle.append(connection)
                stale = self._pop_stale()
                if stale is None:
                    return
                connection = stale
        connection.close()

    def close_stale(self) -> None:
        """Close those that nothing has used for too long."""
        while True:
            with self._lock:
                connection = self._pop_stale()
            if connection is None:
                return
            connection.close()

    def close(self) -> None:
        """Close all, and those that are put back later, too."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _pop_stale(self) -> HttpConnection | None:
        """The one that was used longest ago, if that is too long ago. The caller has the lock."""
        try:
            return self._idle.popleft() if self._idle[0].is_stale else None
        except IndexError:
            # Others take connections without the lock.
            return None


class ConnectionPool:
    """Requests of one kind: at most so many of them use a connection at once. Thread-safe.

    A job runs on a thread of the pool. A caller that waits for its answer anyway may borrow a connection instead.

    A signal handler may raise at any line that the thread of a caller runs through. So that no place and no job is lost
    then, only threads of the pool take jobs, and enter `_running`.
    """

    def __init__(self, name: str, limit: int, connections: IdleConnections) -> None:
        """Threads are called ``<name>-<n>``; none is started yet."""
        self._limit = limit
        self._connections = connections
        self._threads = DaemonPool(name, limit, on_thread_end=connections.close_stale, is_engine=True)
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._running: dict[object, None] = {}
        """A key for each job that has a connection, or is about to."""
        self._borrowers: dict[object, None] = {}
        """Those that have one, or are about to."""
        self._waiting: deque[Job] = deque()
        """Jobs that no thread has taken yet."""
        self._closed = False
        self._all_returned = Latch()
        """Opened when no borrower is left, after `request_close`."""

    def submit(self, job: Job) -> None:
        """Have `job` done as soon as a connection may be used. Never blocks. Dropped after `request_close`.

        Raises `PoolExhausted` if no thread runs and none can be started.
        """
        with self._lock:
            if self._closed:
                return
            self._waiting.append(job)
            if self._is_full():
                return
        try:
            self._threads.submit(self._run_waiting)
        except BaseException as error:
            with self._lock:
                waits = job in self._waiting
                if waits:
                    self._waiting.remove(job)
            # A thread that was about to end may have taken it.
            if waits or not isinstance(error, PoolExhausted):
                raise

    def borrow(self, borrower: object) -> HttpConnection | None:
        """An idle connection for the calling thread, to be given back. None if there is none, or others are first."""
        with self._lock:
            if self._closed or len(self._waiting) + len(self._running) + len(self._borrowers) >= self._limit:
                return None
            self._borrowers[borrower] = None
        connection = self._connections.take_open()
        if connection is None:
            self.give_back(borrower, None)
        return connection

    def give_back(self, borrower: object, connection: HttpConnection | None) -> bool:
        """The borrower is done; without `connection` if that must not be used again.

        False, and harmless, if it was given back or taken over, or if the borrower has borrowed nothing.
        """
        had_one = self._return(borrower)
        if had_one and connection is not None:
            self._connections.put(connection)
        self._wake_thread()
        return had_one

    def take_over(self, borrower: object, connection: HttpConnection, job: Job) -> None:
        """Have `job` go on with a connection that was borrowed, unless that is given back before the job begins.

        Raises `PoolExhausted`, and changes nothing, if no thread runs and none can be started, or after the end.
        """
        if not self._threads.submit(partial(self._go_on, borrower, connection, job)):
            raise PoolExhausted("the pool is closed")

    def request_close(self) -> None:
        """Take no jobs any more, and forget those that wait."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            if not self._borrowers:
                self._all_returned.open()
        self._threads.close()

    def join(self, seconds: float) -> bool:
        """After `request_close`: wait until all threads have ended; False if one is still busy after `seconds`.

        Borrowers are waited for, too, for a moment: one of them may be the thread that waits for this.
        """
        self._all_returned.wait(min(seconds, _BORROWED_SECONDS))
        return self._threads.close(seconds)

    def _is_full(self) -> bool:
        """The caller has the lock."""
        return len(self._running) + len(self._borrowers) >= self._limit

    def _return(self, borrower: object) -> bool:
        """Free the place of a borrower. False if it has none."""
        with self._lock:
            had_one = borrower in self._borrowers
            self._borrowers.pop(borrower, None)
            if self._closed and not self._borrowers:
                self._all_returned.open()
        return had_one

    def _wake_thread(self) -> None:
        """Have a thread look for a job, if there is one that may run. Once too often is harmless."""
        if not self._waiting:
            return
        with self._lock:
            if not self._waiting or self._is_full():
                return
        self._threads.submit(self._run_waiting, keep=True)

    # On threads of the pool.

    def _run_waiting(self) -> None:
        """Run the job that has waited longest, if there is room."""
        key = object()
        with self._lock:
            if not self._waiting or self._is_full():
                return
            job = self._waiting.popleft()
            self._running[key] = None
        self._run(key, job)

    def _go_on(self, borrower: object, connection: HttpConnection, job: Job) -> None:
        key = object()
        with self._lock:
            if not self._return(borrower):
                return
            self._running[key] = None
        self._run(key, job, connection)

    def _run(self, key: object, job: Job, connection: HttpConnection | None = None) -> None:
        try:
            connection = connection or self._connections.take()
            job(connection)
        finally:
            if connection is not None:
                self._connections.put(connection)
            with self._lock:
                self._running.pop(key, None)
            self._wake_thread()
