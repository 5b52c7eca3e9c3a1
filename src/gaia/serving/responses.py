"""HTTP requests that are answered by callbacks: `HttpRequest`, its `Responder`, and the `RequestHandler`.

`gaia.serving.http_protocol` reads the requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import orjson

from gaia.serving.guards import Headers, Refused

UNCHECKED_BYTES = 64 * 1024
"""Bytes of a body that are read before `RequestHandler.refusal`, so that clients without a token fill no memory."""

JSON: Headers = [(b"content-type", b"application/json")]


class HttpRequest(NamedTuple):
    """One complete request, or its head with an empty body."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    """Names are in lower case."""
    body: bytes
    address: str | None


def ignore() -> None:
    """The default of `Responder.on_gone`."""


class Responder(Protocol):
    """One response. Belongs to the server's event loop. No method waits."""

    is_over: bool
    """Whether the response is complete, or the client has closed the connection."""
    on_gone: Callable[[], None]
    """Called if the client closes the connection before the end of the response. Set by the handler."""

    def finish(self, status: int, headers: Headers, body: bytes, /) -> None:
        """Send the whole response, with ``Content-Length``."""

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
        """Count the connection for this client, see `Connections.identify`."""

    @property
    def unread(self) -> int:
        """Bytes that this client has not read yet, on all its connections."""


class RequestHandler(Protocol):
    """Answers requests. For the event loop of the server."""

    def takes(self, path: str) -> bool:
        """Whether requests at this path go to `handle`."""

    def refusal(self, head: HttpRequest, held: list[Callable[[], None]]) -> Refused | None:
        """Why a request with this head and a large body is refused; None if there is no reason yet.

        Functions that it adds to `held` are called when the request has ended.
        """

    def is_probe(self, path: str) -> bool:
        """Whether this path is answered even with too many connections."""

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Answer one request, now or later."""


def release(held: list[Callable[[], None]]) -> None:
    while held:
        held.pop()()


def refuse(responder: Responder, refused: Refused, *headers: tuple[bytes, bytes]) -> None:
    body = orjson.dumps({"error": {"message": refused.message}})
    responder.finish(refused.status, [*JSON, *headers, *refused.headers], body)
