"""Threads that carry out requests, as many as are needed at once within a limit, and the connections they use."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial

from gaia.daemon_pool import DaemonPool
from gaia.mcp.client.transports.http.http_connection import HttpConnection

__all__ = ["ConnectionPool", "Job"]

Job = Callable[[HttpConnection], None]
"""Must not raise."""


class ConnectionPool:
    """At most as many connections as threads; a thread that ends closes one. Thread-safe.

    The connection that was used last is used next, because it is most likely still open.
    """

    def __init__(self, name: str, max_threads: int, new_connection: Callable[[], HttpConnection]) -> None:
        """Threads are called ``<name>-<n>``; none is started yet."""
        self._new_connection = new_connection
        self._idle: deque[HttpConnection] = deque()
        """Needs no lock: each of its operations is atomic."""
        self._threads = DaemonPool(name, max_threads, on_thread_end=self._close_one, is_engine=True)

    def submit(self, job: Job) -> None:
        """Have `job` done as soon as a thread is free. Never blocks. Jobs that come after `request_close` are dropped.

        Raises RuntimeError if no thread runs and none can be started.
        """
        self._threads.submit(partial(self._run, job))

    def request_close(self) -> None:
        """Take no jobs any more, and forget those that wait."""
        self._threads.close()

    def join(self, seconds: float) -> bool:
        """After `request_close`: wait until all threads have ended; False if one is still busy after `seconds`."""
        return self._threads.close(seconds)

    def _run(self, job: Job) -> None:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._new_connection()
        try:
            job(connection)
        finally:
            self._idle.append(connection)

    def _close_one(self) -> None:
        # This thread uses none, so if there are as many connections as threads, one of them is idle.
        with contextlib.suppress(IndexError):
            self._idle.popleft().close()
