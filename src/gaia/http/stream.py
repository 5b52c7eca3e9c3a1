"""A TCP connection whose waits end at a deadline."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from time import monotonic

from gaia.http.errors import TimedOut, is_own

Deadline = float | Callable[[], float | None] | None
"""A reading of `time.monotonic`, or what gives one whenever it is needed, or None for no limit."""

_PIECE_BYTES = 64 * 1024

_SHORTEST_SECONDS = 0.05
"""What is left of a deadline is waited for at once, instead of in parts."""


class Stream:
    """A connected socket, for one thread. Raises `TimedOut`, and OSError for a connection that broke."""

    __slots__ = ("_poll", "_socket", "_timeout")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._timeout = connected.gettimeout()
        self._poll: select.poll | None = None

    def send(self, data: bytes | memoryview, deadline: Deadline) -> None:
        sent = self._send(data, deadline)
        if sent < len(data):
            rest = memoryview(data)
            while sent < len(data):
                sent += self._send(rest[sent:], deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """What has come, at least one byte; nothing if the other side sends no more."""
        while True:
            self._limit(deadline)
            try:
                return self._socket.recv(_PIECE_BYTES)
            except TimeoutError as error:
                _require_own(error)

    def is_readable(self) -> bool:
        """Whether data or the end of the connection has come. Never waits."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        return bool(self._poll.poll(0))

    def _send(self, data: bytes | memoryview, deadline: Deadline) -> int:
        while True:
            self._limit(deadline)
            try:
                return self._socket.send(data)
            except TimeoutError as error:
                _require_own(error)

    def _limit(self, deadline: Deadline) -> None:
        """Give the socket a timeout that ends before the deadline.

        It is set anew only if it does not fit any more, because that is a system call. The deadline is looked at again
        whenever the timeout has passed, so that it can be moved meanwhile.
        """
        at = deadline() if callable(deadline) else deadline
        if at is None:
            if self._timeout is not None:
                self._socket.settimeout(None)
                self._timeout = None
            return
        left = at - monotonic()
        if left <= 0:
            raise TimedOut("the deadline of the request has passed")
        if self._timeout is None or not left / 2 <= self._timeout <= left:
            self._timeout = left if left < _SHORTEST_SECONDS else left * 0.75
            self._socket.settimeout(self._timeout)


def _require_own(error: TimeoutError) -> None:
    """Raise an error of the system, which has a number, such as that of a peer that does not answer any more.

    And that of a signal handler, which is not about this connection.
    """
    if error.errno is not None or not is_own(error):
        raise error
