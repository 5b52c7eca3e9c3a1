"""Runs `Endpoint` as an ASGI application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gaia.mcp.gateway.front.endpoint import Endpoint
from gaia.serving.guards import Headers, Message, Receive, Refused, Scope, Send, disconnected, repeated
from gaia.serving.responses import UNCHECKED_BYTES, HttpRequest, ignore, refuse, release


class _AsgiResponder:
    """A `Responder` that queues messages until the request's task sends them."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.is_over = False
        self.on_gone: Callable[[], None] = ignore
        self.unsent = 0
        self.changed = asyncio.Event()

    def finish(self, status: int, headers: Headers, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        self._put({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        self._end_with(body)

    def open_stream(self, headers: Headers) -> None:
        self._put({"type": "http.response.start", "status": 200, "headers": headers})

    def send(self, event: bytes) -> None:
        self.unsent += len(event)
        self._put({"type": "http.response.body", "body": event, "more_body": True})

    def end(self) -> None:
        self._end_with(b"")

    def identify(self, _client: str, _most: int | None) -> None:
        """Does nothing: the HTTP server owns the connections."""

    @property
    def unread(self) -> int:
        return self.unsent

    def _end_with(self, body: bytes) -> None:
        self.is_over = True
        self._put({"type": "http.response.body", "body": body})

    def _put(self, message: Message) -> None:
        self.messages.append(message)
        self.changed.set()


async def serve_request(
    endpoint: Endpoint, scope: Scope, receive: Receive, send: Send, *, max_body: int, body_seconds: float
) -> None:
    """Answer one HTTP request, whose body may have `max_body` bytes and must arrive within `body_seconds`."""
    responder = _AsgiResponder()
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    address: str | None = scope["client"][0] if scope.get("client") else None
    head = HttpRequest(scope["method"], path, dict(scope["headers"]), b"", address)
    held: list[Callable[[], None]] = []
    try:
        try:
            async with asyncio.timeout(body_seconds):
                body = repeated(scope["headers"]) or await _body(
                    receive, max_body, lambda: endpoint.refusal(head, held)
                )
        except TimeoutError:
            body = Refused(408, f"The body has not come within {body_seconds:g} seconds")
        if body is None:
            return
        if isinstance(body, Refused):
            # Close the connection, because the server would read the rest of the body as the next request.
            refuse(responder, body, (b"connection", b"close"))
        else:
            endpoint.handle(head._replace(body=body), responder)
        await _respond(responder, receive, send)
    finally:
        release(held)


async def _respond(responder: _AsgiResponder, receive: Receive, send: Send) -> None:
    gone: asyncio.Task[None] | None = None
    try:
        while gone is None or not gone.done():
            responder.changed.clear()
            while responder.messages:
                message = responder.messages.popleft()
                await send(message)
                responder.unsent = max(0, responder.unsent - len(message.get("body", b"")))
            if responder.is_over:
                return
            if gone is None:
                gone = asyncio.create_task(disconnected(receive))
                gone.add_done_callback(lambda _: responder.changed.set())
            await responder.changed.wait()
    finally:
        if gone is not None:
            gone.cancel()
        if not responder.is_over or responder.messages:
            responder.is_over = True
            responder.on_gone()


async def _body(receive: Receive, most: int, refusal: Callable[[], Refused | None]) -> bytes | Refused | None:
    """The body; None if the client has gone; `Refused` if it is longer than `most`, or if it is large and refused."""
    body: bytes | bytearray = b""
    is_large = False
    while (message := await receive())["type"] != "http.disconnect":
        part: bytes = message.get("body", b"")
        size = len(body) + len(part)
        if size > most:
            return Refused(413, f"The body is larger than {most} bytes")
        if size > UNCHECKED_BYTES and not is_large:
            is_large = True
            if (refused := refusal()) is not None:
                return refused
        if not message.get("more_body"):
            return bytes(body + part) if body else part
        if isinstance(body, bytes):
            # A body may come in many small parts, and `bytes` would be copied for each of them.
            body = bytearray(body)
        body += part
    return None
