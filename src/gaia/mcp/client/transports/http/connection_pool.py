"""Threads that carry out requests: as many as are needed at once, within a limit."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaia.mcp.client.transports.http.http_connection import HttpConnection

__all__ = ["ConnectionPool", "Job"]

Job = Callable[["HttpConnection"], None]
"""Must not raise."""

_IDLE_SECONDS = 10.0


class ConnectionPool:
    """Daemon threads, each with a wire of its own. A thread that has nothing to do for some seconds ends.

    The thread that was busy last gets the next job, because its connection is most likely still open.
    """

    def __init__(
        self, limit: int, new_thread_name: Callable[[], str], new_http_connection: Callable[[], HttpConnection]
    ) -> None:
        self._limit = limit
        self._new_thread_name = new_thread_name
        self._new_http_connection = new_http_connection
        self._lock = threading.Lock()
        """Owns everything below."""
        self._members: list[_Member] = []
        self._idle: list[_Member] = []
        self._waiting: deque[Job] = deque()
        self._closed = False

    def submit(self, job: Job) -> None:
        """Have `job` done, as soon as a thread is free. Never blocks. Jobs that come after `close` are dropped.

        Raises RuntimeError if the first thread cannot be started.
        """
        with self._lock:
            if self._closed:
                return
            if self._idle:
                self._idle.pop().inbox.put(job)
            elif len(self._members) < self._limit:
                self._start(job)
            else:
                self._waiting.append(job)

    def request_close(self) -> None:
        """Take no jobs any more, and forget those that wait."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for member in self._idle:
                member.inbox.put(None)
            self._idle.clear()

    def join(self, seconds: float) -> bool:
        """Wait until all threads have ended; False if one is still busy after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._lock:
            threads = [member.thread for member in self._members]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _start(self, job: Job) -> None:
        member = _Member(self._work, self._new_thread_name(), self._new_http_connection())
        member.inbox.put(job)
        self._members.append(member)
        try:
            member.thread.start()
        except RuntimeError:
            self._members.remove(member)
            member.http_connection.close()
            if not self._members:
                raise
            self._waiting.append(job)

    def _work(self, member: _Member) -> None:
        try:
            while (job := self._next(member)) is not None:
                job(member.http_connection)
                job = None
                self._done(member)
        finally:
            member.http_connection.close()
            with self._lock:
                self._members.remove(member)

    def _next(self, member: _Member) -> Job | None:
        while True:
            try:
                return member.inbox.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # If it is not idle any more, there is a job in its inbox.
                    if member in self._idle:
                        self._idle.remove(member)
                        return None

    def _done(self, member: _Member) -> None:
        with self._lock:
            if self._waiting:
                member.inbox.put(self._waiting.popleft())
            elif self._closed:
                member.inbox.put(None)
            else:
                self._idle.append(member)


class _Member:
    def __init__(self, work: Callable[[_Member], None], name: str, http_connection: HttpConnection) -> None:
        self.http_connection = http_connection
        self.inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
