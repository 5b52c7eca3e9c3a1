"""`ResponseParser`: the heads and bodies of the responses on one connection. Sans I/O; it uses the parser llhttp.

llhttp refuses heads that make the end of a response ambiguous: a length beside chunks, two lengths, line feeds without
carriage returns, spaces before a colon. This module checks the rest.
"""

from __future__ import annotations

import httptools

from gaia.http.errors import ProtocolBroken, TooLong

MAX_HEAD_BYTES = 64 * 1024
"""For heads (also of preceding 1xx responses), trailers and extensions of chunks. All data between two pieces of body
counts together."""

MAX_HEADERS = 256

_INFORMATIONAL = range(100, 200)
_SWITCHING = 101


class _Surplus(Exception):
    """There is data behind the end of the response."""


class ResponseParser:
    """For one connection and one thread. Call `begin` before each request, then `feed` until `complete`."""

    __slots__ = (
        "_bodyless",
        "_head_bytes",
        "_parser",
        "_raw",
        "_refused",
        "body",
        "complete",
        "has_head",
        "headers",
        "keep_alive",
        "on_body",
        "status",
    )

    def __init__(self) -> None:
        self.body: list[bytes] = []
        """The pieces of the body that have arrived and were not taken out yet."""
        # The parser keeps this method, so the list must stay the same object.
        self.on_body = self.body.append
        self.begin()
        self._parser = httptools.HttpResponseParser(self)

    def begin(self, *, bodyless: bool = False) -> None:
        """Expect the response to a new request; with `bodyless` (HEAD, CONNECT) it ends after the head."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """By lower-case name. Several values are joined by commas; those of Set-Cookie by line feeds."""
        self.has_head = False
        self.complete = False
        self.keep_alive = False
        """Whether another request can use the connection once the response is complete."""
        self._bodyless = bodyless
        self._raw: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._refused: str | None = None
        self.body.clear()

    def feed(self, data: bytes) -> None:
        """Parse data of the connection; empty data means that it was closed. Raises `ProtocolBroken` and `TooLong`."""
        if not data:
            self._end()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # Besides ours, only a signal handler's exception can be raised in the callbacks.
            if not isinstance(error.__context__, _Surplus):
                raise (error.__context__ or error) from None
            self.keep_alive = False
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                raise ProtocolBroken(f"the response is not HTTP/1.1: {_reason(error)}") from None
            self.keep_alive = False
        if self._refused is not None:
            raise ProtocolBroken(self._refused)
        if self.body or self.complete:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise TooLong(f"the head of the response is longer than {MAX_HEAD_BYTES} bytes")

    def _end(self) -> None:
        if not self.has_head:
            raise ProtocolBroken("the server closed the connection without a response")
        if b"transfer-encoding" in self.headers or b"content-length" in self.headers:
            raise ProtocolBroken("the server closed the connection before the end of the response")
        # The end of the connection ends the body.
        self.complete = True
        self.keep_alive = False

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            raise _Surplus

    def on_header(self, name: bytes, value: bytes) -> None:
        self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        status = parser.get_status_code()
        raw = self._raw
        if len(raw) > MAX_HEADERS:
            self._refused = f"the response has more than {MAX_HEADERS} headers"
        if status < 200:
            if status not in _INFORMATIONAL or status == _SWITCHING:
                self._refused = f"the server answered with the status {status}, which was not asked for"
            raw.clear()
            return
        self.status = status
        self.headers = headers = {name.lower(): value for name, value in raw}
        if len(headers) != len(raw):
            _join_values(headers, raw)
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            self._refused = "the response has a transfer encoding that was not asked for"
        self.keep_alive = not self._bodyless and parser.should_keep_alive()
        self.complete = self._bodyless
        self.has_head = True

    def on_message_complete(self) -> None:
        if self.has_head:
            self.complete = True
        elif self.body:
            self._refused = "an informational response has a body"


def _join_values(headers: dict[bytes, bytes], raw: list[tuple[bytes, bytes]]) -> None:
    values: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        values.setdefault(name.lower(), []).append(value)
    for name, several in values.items():
        headers[name] = (b"\n" if name == b"set-cookie" else b", ").join(several)


def _reason(error: Exception) -> str:
    return "it switches the protocol" if isinstance(error, httptools.HttpParserUpgrade) else str(error)
