"""Runs `Endpoint` as an ASGI application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import orjson

from gaia.mcp.gateway.front.endpoint import Endpoint
from gaia.serving.guards import Headers, Message, Receive, Refused, Scope, Send, disconnected, repeated
from gaia.serving.responses import JSON, UNCHECKED_BYTES, HttpRequest, ignore, release


class _AsgiResponder:
    """A `Responder` that queues messages until the request's task sends them."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.is_over = False
        self.on_gone: Callable[[], None] = ignore
        self.unsent = 0
        self._waiter: asyncio.Future[None] | None = None

    def finish(self, status: int, headers: Headers, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        self.messages.append({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        self.messages.append({"type": "http.response.body", "body": body})
        self.is_over = True
        self.wake()

    def open_stream(self, headers: Headers) -> None:
        self.messages.append({"type": "http.response.start", "status": 200, "headers": headers})
        self.wake()

    def send(self, event: bytes) -> None:
        self.unsent += len(event)
        self.messages.append({"type": "http.response.body", "body": event, "more_body": True})
        self.wake()

    def end(self) -> None:
        self.messages.append({"type": "http.response.body", "body": b""})
        self.is_over = True
        self.wake()

    def identify(self, _client: str, _most: int | None) -> None:
        """Does nothing: the HTTP server owns the connections."""

    @property
    def unread(self) -> int:
        return self.unsent

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class _ClientGone(Exception):
    """The client has closed the connection before the end of its request."""


class _RequestRefused(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


async def serve_request(
    endpoint: Endpoint, scope: Scope, receive: Receive, send: Send, *, max_body: int, body_seconds: float
) -> None:
    """Answer one request of the type ``http``, whose body has `max_body` bytes at most and comes in `body_seconds`."""
    responder = _AsgiResponder()
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    address: str | None = scope["client"][0] if scope.get("client") else None
    head = HttpRequest(scope["method"], path, dict(scope["headers"]), b"", address)
    held: list[Callable[[], None]] = []
    try:
        if (twice := repeated(scope["headers"])) is not None:
            raise _RequestRefused(twice)
        async with asyncio.timeout(body_seconds):
            body = await _body(receive, max_body, lambda: endpoint.refusal(head, held))
    except _ClientGone:
        return
    except TimeoutError:
        _refuse(responder, Refused(408, f"The body has not come within {body_seconds:g} seconds"))
    except _RequestRefused as problem:
        _refuse(responder, problem.refused)
    else:
        endpoint.handle(head._replace(body=body), responder)
    try:
        await _respond(responder, receive, send)
    finally:
        release(held)


async def _respond(responder: _AsgiResponder, receive: Receive, send: Send) -> None:
    """Send the endpoint's messages until the response ends or the client has gone."""
    gone: asyncio.Task[None] | None = None
    is_gone = False

    def left(_: object) -> None:
        nonlocal is_gone
        is_gone = True
        responder.wake()

    try:
        while not is_gone:
            while responder.messages:
                message = responder.messages.popleft()
                await send(message)
                responder.unsent = max(0, responder.unsent - len(message.get("body", b"")))
            if responder.is_over:
                return
            if gone is None:
                gone = asyncio.create_task(disconnected(receive))
                gone.add_done_callback(left)
            await responder.wait()
    finally:
        if gone is not None:
            gone.cancel()
        if not responder.is_over or responder.messages:
            responder.is_over = True
            responder.on_gone()


async def _body(receive: Receive, most: int, refusal: Callable[[], Refused | None]) -> bytes:
    """The body. Raises `_ClientGone`, and `_RequestRefused` if it is longer than `most`, or large and refused."""
    body: bytes | bytearray = b""
    is_large = False
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        part: bytes = message.get("body", b"")
        size = len(body) + len(part)
        if size > most:
            raise _RequestRefused(Refused(413, f"The body is larger than {most} bytes"))
        if size > UNCHECKED_BYTES and not is_large:
            is_large = True
            if (refused := refusal()) is not None:
                raise _RequestRefused(refused)
        if not message.get("more_body"):
            return bytes(body + part) if body else part
        if isinstance(body, bytes):
            # A body may come in many small parts. Appending each to `bytes` would copy everything.
            body = bytearray(body)
        body += part


def _refuse(responder: _AsgiResponder, refused: Refused) -> None:
    # Close the connection: the rest of the body would be read as the next request.
    headers = [*JSON, (b"connection", b"close"), *refused.headers]
    responder.finish(refused.status, headers, orjson.dumps(refused.body))
