"""`DirectHandler`: what answers HTTP requests by callbacks (`gaia.serving.direct_http`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaia.serving.guards import Headers, Refused

UNCHECKED_BYTES = 64 * 1024
"""Of the body of a request. Before more of it is read, `DirectHandler.refusal` says whether its client may send any:
otherwise all connections together could have hundreds of megabytes kept without a token."""

JSON: Headers = [(b"content-type", b"application/json")]


class Responder(Protocol):
    """One response. Belongs to the server's event loop; nothing of it waits."""

    def finish(self, status: int, headers: Headers, body: bytes, /) -> None:
        """The whole response. ``Content-Length`` is added."""

    def open_stream(self, headers: Headers, /) -> None:
        """Begin a response with status 200 whose length is not known."""

    def send(self, event: bytes, /) -> None:
        """A part of the stream."""

    def end(self) -> None:
        """The end of the stream."""

    @property
    def unsent(self) -> int:
        """Bytes of the stream that the client has not taken yet."""

    def identify(self, client: str, most: int | None, /) -> int | None:
        """Count the connection for this client. Returns None, or how many the client has if it must not have more.

        It may have `most`; None is half of all that there may be.
        """

    @property
    def unread(self) -> int:
        """Bytes that this client has not taken yet, on all of its connections."""


class DirectExchange(Protocol):
    """One request and its response."""

    def client_gone(self) -> None:
        """The client has closed the connection before the end of the response."""


class DirectHandler(Protocol):
    """Answers requests. For the event loop of the server."""

    def takes(self, path: str) -> bool:
        """Whether requests at this path go to `handle`."""

    def refusal(
        self,
        method: str,
        path: str,
        headers: dict[bytes, bytes],
        address: str | None,
        held: list[Callable[[], None]],
    ) -> Refused | None:
        """Why a request with these headers and a large body is refused; None if that is not known yet.

        What is added to `held` has to be called once the request is over.
        """

    def is_probe(self, path: str) -> bool:
        """Whether this path is to be answered also when there are too many connections."""

    def handle(
        self,
        method: str,
        path: str,
        headers: dict[bytes, bytes],
        body: bytes,
        responder: Responder,
        address: str | None,
    ) -> DirectExchange:
        """Answer one request, now or later. Names of `headers` are in lower case; `address` is the client's IP."""
