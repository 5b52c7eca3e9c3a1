"""The endpoint as an ASGI application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gaia.mcp.gateway.front.endpoint import Endpoint
from gaia.serving.direct_handler import Headers

__all__ = ["Receive", "Scope", "Send", "serve_request"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _AsgiResponder:
    """Collects what the endpoint says until the request's task sends it."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.is_over = False
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

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


async def serve_request(endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of the type ``http``."""
    body = await _body(receive)
    if body is None:
        return
    responder = _AsgiResponder()
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    address = scope["client"][0] if scope.get("client") else None
    exchange = endpoint.handle(scope["method"], path, dict(scope["headers"]), body, responder, address)
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
                gone = asyncio.create_task(_disconnected(receive))
                gone.add_done_callback(left)
            await responder.wait()
    finally:
        if gone is not None:
            gone.cancel()
        if not responder.is_over or responder.messages:
            exchange.client_gone()


async def _body(receive: Receive) -> bytes | None:
    """None if the client has gone."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts = [body]
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
        body = b"".join(parts)
    return None if message["type"] == "http.disconnect" else body


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
