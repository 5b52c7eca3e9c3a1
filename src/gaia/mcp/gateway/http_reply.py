"""`HttpReply`: the answer to one POST, as JSON or, if something comes before it, as a stream of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Headers", "HttpReply", "Responder", "event"]

Headers = list[tuple[bytes, bytes]]

JSON: Headers = [(b"content-type", b"application/json")]
STREAM: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Proxies such as nginx would collect events.
    (b"x-accel-buffering", b"no"),
]


class Responder(Protocol):
    """The HTTP server's side of one response. Belongs to the loop; nothing of it waits."""

    def finish(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole response. ``Content-Length`` is added."""

    def open_stream(self, headers: Headers) -> None:
        """Begin a response with status 200 whose length is not known."""

    def send(self, event: bytes) -> None:
        """A part of the stream."""

    def end(self) -> None:
        """The end of the stream."""

    @property
    def unsent(self) -> int:
        """Bytes of the stream that the client has not taken yet."""


def event(message: bytes) -> bytes:
    """A message as a server-sent event. Messages have no line ends."""
    return b"event: message\ndata: " + message + b"\n\n"


class HttpReply:
    """See `Reply`."""

    __slots__ = ("_accepts_stream", "_headers", "_is_open", "_on_end", "_responder")

    def __init__(
        self, responder: Responder, *, accepts_stream: bool, headers: Headers, on_end: Callable[[], None] | None = None
    ) -> None:
        """`headers` are added to the response's."""
        self._responder = responder
        self._accepts_stream = accepts_stream
        self._headers = headers
        self._is_open = False
        self._on_end = on_end

    def send(self, message: bytes) -> None:
        if self._accepts_stream:
            self.open()
            self._responder.send(event(message))

    def open(self) -> None:
        """Begin the stream, if that has not happened."""
        if not self._is_open:
            self._is_open = True
            self._responder.open_stream([*STREAM, *self._headers])

    def answer(self, message: bytes, status: int) -> None:
        if self._is_open:
            self._responder.send(event(message))
            self._responder.end()
        else:
            self._responder.finish(status, [*JSON, *self._headers], message)
