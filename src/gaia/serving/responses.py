"""HTTP requests that are answered by callbacks: `HttpRequest`, its `Responder`, and the `RequestHandler` that answers.

`gaia.serving.http_protocol` reads the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import NamedTuple, Protocol

from gaia.serving.guards import Headers, Refused

UNCHECKED_BYTES = 64 * 1024
"""Bytes of a body that are read unchecked. Before more is read, `RequestHandler.refusal` says whether the client may
send it. Otherwise all connections together could fill hundreds of megabytes without a token."""

JSON: Headers = [(b"content-type", b"application/json")]


_STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


class HttpRequest(NamedTuple):
    """One complete request, or its head with an empty body."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    """Names are in lower case."""
    body: bytes
    address: str | None
    """The client's IP address."""


def ignore() -> None:
    """The default of `Responder.on_gone`."""


class Responder(Protocol):
    """One response. Belongs to the server's event loop. No method waits."""

    is_over: bool
    """Whether the response is complete, or the client has closed the connection."""
    on_gone: Callable[[], None]
    """Called if the client closes the connection before the end of the response. The handler sets it."""

    def finish(self, status: int, headers: Headers, body: bytes, /) -> None:
        """Send the whole response. ``Content-Length`` is added."""

    def open_stream(self, headers: Headers, /) -> None:
        """Begin a response with status 200 and unknown length."""

    def send(self, event: bytes, /) -> None:
        """Send a part of the stream."""

    def end(self) -> None:
        """End the stream."""

    @property
    def unsent(self) -> int:
        """Bytes of the stream that the client has not read yet."""

    def identify(self, client: str, most: int | None, /) -> int | None:
        """Count the connection for this client.

        Returns None, or the client's number of connections if it may have no more.

        The client may have `most`; None is half of all connections.
        """

    @property
    def unread(self) -> int:
        """Bytes that this client has not read yet, on all its connections."""


class RequestHandler(Protocol):
    """Answers requests. For the event loop of the server."""

    def takes(self, path: str) -> bool:
        """Whether requests at this path go to `handle`."""

    def refusal(self, head: HttpRequest, held: list[Callable[[], None]]) -> Refused | None:
        """Why a request with this head and a large body is refused; None if there is no reason yet.

        Functions added to `held` are called when the request has ended.
        """

    def is_probe(self, path: str) -> bool:
        """Whether this path is answered even with too many connections."""

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Answer one request, now or later."""


class ResponseConnection(Protocol):
    """The part of a connection that a response needs."""

    @property
    def default_headers(self) -> Headers: ...

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not read."""

    def unread_of_client(self) -> int:
        """The same, on all connections of this client."""

    def write(self, data: bytes) -> None: ...

    def identify(self, client: Hashable, most: int | None) -> int | None: ...

    def answered(self, *, keeps_alive: bool) -> None:
        """The response is complete."""


class HttpResponder:
    """Writes one response to its connection; see `Responder`."""

    __slots__ = ("_connection", "added", "has_body", "held", "is_over", "keeps_alive", "on_gone")

    def __init__(self, connection: ResponseConnection, *, keeps_alive: bool) -> None:
        self._connection = connection
        self.is_over = False
        self.on_gone = ignore
        self.keeps_alive = keeps_alive
        self.held: list[Callable[[], None]] = []
        """Functions to call at the end."""
        self.added: Headers = ()
        """Headers besides those of the handler."""
        self.has_body = True
        """False for the method HEAD."""

    def finish(self, status: int, headers: Headers, body: bytes) -> None:
        if not self.is_over:
            head = self._head(status, headers)
            sent = body if self.has_body else b""
            self._connection.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), sent))
            self._end()

    def open_stream(self, headers: Headers) -> None:
        if not self.is_over:
            self._connection.write(self._head(200, headers) + b"transfer-encoding: chunked\r\n\r\n")

    def send(self, event: bytes) -> None:
        if event and not self.is_over:
            self._connection.write(b"%x\r\n%b\r\n" % (len(event), event))

    def end(self) -> None:
        if not self.is_over:
            self._connection.write(b"0\r\n\r\n")
            self._end()

    @property
    def unsent(self) -> int:
        return 0 if self.is_over else self._connection.unread

    def identify(self, client: Hashable, most: int | None) -> int | None:
        return self._connection.identify(client, most)

    @property
    def unread(self) -> int:
        return self._connection.unread_of_client()

    def lost(self) -> None:
        """The connection is closed."""
        if not self.is_over:
            self.is_over = True
            release(self.held)
            self.on_gone()

    def _end(self) -> None:
        self.is_over = True
        # Break the reference cycle: `on_gone` refers to the request, which refers to this response.
        self.on_gone = ignore
        release(self.held)
        self._connection.answered(keeps_alive=self.keeps_alive)

    def _head(self, status: int, headers: Headers) -> bytes:
        lines = [_STATUS_LINES[status]]
        for name, value in (*self._connection.default_headers, *headers, *self.added):
            lines += (name, b": ", value, b"\r\n")
        if not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        return b"".join(lines)


def release(held: list[Callable[[], None]]) -> None:
    """Call each function in `held`, once."""
    while held:
        held.pop()()
