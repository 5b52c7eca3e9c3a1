"""The byte streams of one connection: a TCP socket, TLS over it, or TLS over the TLS to a proxy."""

from __future__ import annotations

import os
import socket
import ssl
from time import monotonic

from gaia.http.errors import TimedOut
from gaia.http.waits import LATE, Deadline, Ready, run

_PIECE_BYTES = 64 * 1024
_LARGE_PIECE_BYTES = 1024 * 1024

_CA_FILES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where systems keep their certificates. A Python that was built elsewhere may look in none of these places."""


class Stream:
    """A connected socket, for one exchange at a time. Raises `TimedOut`, and OSError if the connection broke."""

    __slots__ = ("_piece", "_readable", "_socket", "_writable")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._piece = _PIECE_BYTES
        self._readable = Ready(connected)
        self._writable: Ready | None = None

    def send_now(self, data: bytes | memoryview, deadline: Deadline) -> int:
        """Send as much as is possible without waiting. Returns the number of bytes sent."""
        at = deadline() if callable(deadline) else deadline
        if at is not None and at <= monotonic():
            raise TimedOut(LATE)
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def send(self, data: bytes | memoryview, deadline: Deadline) -> None:
        while (sent := self.send_now(data, deadline)) < len(data):
            data = memoryview(data)[sent:]
            self._writable = self._writable or Ready(self._socket, writable=True)
            self._writable.deadline = deadline
            if not await self._writable:
                raise TimedOut(LATE)

    async def receive(self, deadline: Deadline) -> bytes:
        """The available data, at least one byte; empty if the other side sends no more."""
        self._readable.deadline = deadline
        while True:
            # Even if data is available: an exchange that never waits would block all others.
            if not await self._readable:
                raise TimedOut(LATE)
            try:
                return self._received()
            except BlockingIOError:
                continue

    def receive_here(self, deadline: Deadline) -> bytes:
        """`receive`, waiting in this thread. A coroutine for each call would take too long."""
        self._readable.deadline = deadline
        while self._readable.here():
            try:
                return self._received()
            except BlockingIOError:
                continue
        raise TimedOut(LATE)

    def _received(self) -> bytes:
        data = self._socket.recv(self._piece)
        # Each piece costs a wait, so the pieces of a long message are larger.
        self._piece = _LARGE_PIECE_BYTES if len(data) == self._piece else _PIECE_BYTES
        return data

    def is_readable(self) -> bool:
        """Whether data or the end of the connection has arrived. Never waits."""
        return self._readable.is_ready()


class TlsStream:
    """TLS over a stream, with the same methods. Call `shake_hands` first.

    Python's TLS sockets cannot wait as `gaia.http.waits` requires, and cannot be stacked. Here the TLS library only
    converts bytes; the stream below does all waiting, with deadlines and interruptions.
    """

    __slots__ = ("_below", "_incoming", "_outgoing", "_tls")

    def __init__(self, below: Stream | TlsStream, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def shake_hands(self, deadline: Deadline) -> None:
        """Raises `TimedOut`, `ssl.SSLError`, and other OSErrors."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush(deadline)
                await self._fill(deadline)
            except ssl.SSLError:
                # Tell the other side the reason.
                await self._flush(deadline)
                raise
            else:
                await self._flush(deadline)
                return

    def send_now(self, data: bytes | memoryview, deadline: Deadline) -> int:  # noqa: ARG002 - as `Stream`
        """Sends nothing, because TLS may have to wait before it sends."""
        return 0

    async def send(self, data: bytes | memoryview, deadline: Deadline) -> None:
        rest = memoryview(data)
        while rest:
            # The write goes to memory, which takes all of it.
            rest = rest[self._tls.write(rest[:_PIECE_BYTES]) :]
            await self._flush(deadline)

    async def receive(self, deadline: Deadline) -> bytes:
        """As `Stream.receive`. A connection may end without TLS's closing message, because many servers omit it."""
        while True:
            try:
                return self._tls.read(_PIECE_BYTES)
            except ssl.SSLWantReadError:
                await self._flush(deadline)
                await self._fill(deadline)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def receive_here(self, deadline: Deadline) -> bytes:
        return run(self.receive(deadline))

    def is_readable(self) -> bool:
        return self._tls.pending() > 0 or self._incoming.pending > 0 or self._below.is_readable()

    async def _flush(self, deadline: Deadline) -> None:
        if self._outgoing.pending:
            await self._below.send(self._outgoing.read(), deadline)

    async def _fill(self, deadline: Deadline) -> None:
        data = await self._below.receive(deadline)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


def tls_context() -> ssl.SSLContext:
    """Trusts the system's certificates, or those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``. Raises OSError."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    paths = ssl.get_default_verify_paths()
    if not file and not folder and not paths.cafile and not (paths.capath and os.listdir(paths.capath)):
        file = next((place for place in _CA_FILES if os.path.isfile(place)), None)
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:
        # The error does not name the file.
        raise OSError(f"{file or folder}: {error.strerror or error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context
