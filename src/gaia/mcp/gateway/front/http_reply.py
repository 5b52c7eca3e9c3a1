"""Responses over HTTP: `HttpReply` answers a POST, `HttpStream` sends a session's messages to a GET."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.protocol.remote_deadlines import GatewayClock
from gaia.serving.guards import Headers
from gaia.serving.responses import JSON, Responder

STREAM: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Proxies such as nginx would buffer events.
    (b"x-accel-buffering", b"no"),
]

_COMMENT = b": keep-alive\n\n"

MAX_UNSENT = 512 * 1024
"""Unsent bytes on a slow client's connection, after which a reply sends only its answer, and a stream ends."""


class KeepAlive:
    """Sends comments on silent responses, so that proxies do not close them. For the gateway's event loop."""

    def __init__(self) -> None:
        self.replies: dict[HttpReply, bool] = {}
        """Open replies, each with whether the last sweep has seen it. Replies add and remove themselves."""
        self.streams: dict[HttpStream, None] = {}

    def sweep(self) -> None:
        for reply, was_seen in list(self.replies.items()):
            if was_seen:
                reply.keep_alive()
            else:
                self.replies[reply] = True
        for stream in self.streams:
            stream.keep_alive()


def _event(message: bytes) -> bytes:
    """A message as a server-sent event. Messages contain no line breaks."""
    return b"event: message\ndata: " + message + b"\n\n"


class HttpReply:
    """See `Reply`. It becomes an event stream if a message precedes the answer, or if the answer takes long."""

    __slots__ = ("_clock", "_headers", "_is_open", "_keep_alive", "_responder", "accepts_messages")

    def __init__(
        self,
        responder: Responder,
        keep_alive: KeepAlive,
        clock: GatewayClock,
        headers: Headers,
        *,
        accepts_messages: bool,
    ) -> None:
        self._responder = responder
        self._keep_alive = keep_alive
        self._clock = clock
        self._headers = headers
        self._is_open = False
        self.accepts_messages = accepts_messages
        keep_alive.replies[self] = False

    def send(self, message: bytes) -> None:
        if self.accepts_messages and self._responder.unsent < MAX_UNSENT:
            self._open()
            self._responder.send(_event(message))

    def answer(self, message: bytes, status: int) -> None:
        self._keep_alive.replies.pop(self, None)
        if self._is_open:
            self._responder.send(_event(message))
            self._responder.end()
        else:
            self._responder.finish(status, [*JSON, self._clock.header(monotonic()), *self._headers], message)

    def abandon(self) -> None:
        self._keep_alive.replies.pop(self, None)
        if self._is_open:
            self._responder.end()
        else:
            self._responder.finish(202, self._headers, b"")

    def forget(self) -> None:
        self._keep_alive.replies.pop(self, None)

    @property
    def unread(self) -> int:
        return self._responder.unread

    def keep_alive(self) -> None:
        if self.accepts_messages and self._responder.unsent < MAX_UNSENT:
            self._open()
            self._responder.send(_COMMENT)

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._responder.open_stream([*STREAM, self._clock.header(monotonic()), *self._headers])


class HttpStream:
    """See `MessageStream`. It ends if the client does not read. The client sees missed changes when it lists again."""

    __slots__ = ("_is_over", "_keep_alive", "_responder", "on_over", "owner")

    def __init__(self, responder: Responder, keep_alive: KeepAlive, owner: Principal | None = None) -> None:
        self.owner = owner
        self.on_over: Callable[[], None] = lambda: None
        """Called once, when the gateway ends the stream or the client has closed the connection."""
        self._responder = responder
        self._keep_alive = keep_alive
        self._is_over = False
        keep_alive.streams[self] = None
        responder.open_stream(STREAM)

    def send(self, message: bytes) -> None:
        if self._responder.unsent >= MAX_UNSENT:
            self.end()
        elif not self._is_over:
            self._responder.send(_event(message))

    def note(self, event_id: str) -> None:
        if self._responder.unsent < MAX_UNSENT:
            self._responder.send(b"id: %b\ndata:\n\n" % event_id.encode())

    def keep_alive(self) -> None:
        if self._responder.unsent < MAX_UNSENT:
            self._responder.send(_COMMENT)

    def end(self) -> None:
        if not self._is_over:
            self.forget()
            self._responder.end()

    def forget(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._keep_alive.streams.pop(self, None)
            self.on_over()
