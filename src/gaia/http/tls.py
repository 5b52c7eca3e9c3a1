"""TLS over a stream: a TCP connection, or another TLS to a proxy.

Python's TLS sockets wait in ways of their own, and cannot be stacked. Here the library only turns bytes into bytes; all
waiting is that of the stream below, which has the deadlines and can be interrupted.
"""

from __future__ import annotations

import os
import ssl

from gaia.http.stream import Deadline, Stream

_PIECE_BYTES = 64 * 1024

_CA_FILES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where systems keep their certificates: a Python from elsewhere may look in none of these places."""


def tls_context() -> ssl.SSLContext:
    """Trusts what the system does, or what ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` hold. Takes a tenth of a second.

    Raises OSError if the file cannot be read, also for one without certificates.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    paths = ssl.get_default_verify_paths()
    if not file and not folder and not paths.cafile and not (paths.capath and os.listdir(paths.capath)):
        file = next((place for place in _CA_FILES if os.path.isfile(place)), None)
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:
        # It does not say which file.
        raise OSError(f"{file or folder}: {error.strerror or error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsStream:
    """Like `Stream`, for one thread. `shake_hands` comes first."""

    __slots__ = ("_below", "_incoming", "_outgoing", "_tls")

    def __init__(self, below: Stream | TlsStream, context: ssl.SSLContext, host: str) -> None:
        """`host` is the name or the address that the certificate has to have."""
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def shake_hands(self, deadline: Deadline) -> None:
        """Raises `TimedOut`, `ssl.SSLError`, and other OSErrors."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(deadline)
                self._fill(deadline)
            except ssl.SSLError:
                # The other side learns why.
                self._flush(deadline)
                raise
            else:
                self._flush(deadline)
                return

    def send(self, data: bytes | memoryview, deadline: Deadline) -> None:
        rest = memoryview(data)
        while rest:
            # Into memory, which takes all of it.
            rest = rest[self._tls.write(rest[:_PIECE_BYTES]) :]
            self._flush(deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """As `Stream.receive`. An end without TLS's own end counts as one: many servers leave that out."""
        while True:
            try:
                return self._tls.read(_PIECE_BYTES)
            except ssl.SSLWantReadError:
                self._flush(deadline)
                self._fill(deadline)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def is_readable(self) -> bool:
        return self._tls.pending() > 0 or self._incoming.pending > 0 or self._below.is_readable()

    def _flush(self, deadline: Deadline) -> None:
        if self._outgoing.pending:
            self._below.send(self._outgoing.read(), deadline)

    def _fill(self, deadline: Deadline) -> None:
        data = self._below.receive(deadline)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
