"""The end of a login in the browser: a port of this machine that waits for one redirect (RFC 8252)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["Loopback", "listening"]

_PATH = "/callback"
_MAX_REQUEST = 32 * 1024
_REQUEST_SECONDS = 10.0

_DONE = "You are logged in. You can close this page."
_REFUSED = "The login did not succeed. You can close this page."
_STRANGE = "This is not the answer to a login that is under way."


class Loopback:
    """Waits for the browser. For one event loop."""

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self._path = urlsplit(redirect_uri).path or "/"
        self._state: str | None = None
        self.redirected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """The address that the browser was sent to."""

    def expect(self, state: str) -> None:
        """Only a redirect with this `state` counts: anything on this machine can call us."""
        self._state = state

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a browser, or of somebody else."""
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
                status, text = self._judge(method, target)
                body = f'<!doctype html><meta charset="utf-8"><title>gaia</title><p>{text}</p>'.encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def _judge(self, method: str, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        (state,) = query.get("state", [""])[:1]
        if method != "GET" or parts.path != self._path or self.redirected.done():
            return "404 Not Found", _STRANGE
        if self._state is None or not hmac.compare_digest(state.encode(), self._state.encode()):
            return "400 Bad Request", _STRANGE
        self.redirected.set_result(f"{self.redirect_uri.partition('?')[0]}?{parts.query}")
        return "200 OK", _REFUSED if "error" in query else _DONE


@contextlib.asynccontextmanager
async def listening(redirect_uri: str | None, port: int = 0) -> AsyncIterator[Loopback]:
    """Listen where `redirect_uri` says; without one, on `port`, or on any port if that is taken. Raises OSError."""
    if redirect_uri is not None:
        parts = urlsplit(redirect_uri)
        loopback = Loopback(redirect_uri)
        server = await _listen(loopback, parts.hostname or "127.0.0.1", parts.port or 0)
    else:
        loopback = Loopback(_PATH)
        try:
            server = await _listen(loopback, "127.0.0.1", port)
        except OSError:
            server = await _listen(loopback, "127.0.0.1", 0)
        loopback.redirect_uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}"
    try:
        yield loopback
    finally:
        server.close()


async def _listen(loopback: Loopback, host: str, port: int) -> asyncio.Server:
    return await asyncio.start_server(loopback.serve, host, port, limit=_MAX_REQUEST)
