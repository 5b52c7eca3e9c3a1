"""A login in a browser, and the redirect to this machine (RFC 8252). Importing this module imports the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

from gaia.runtime.log import exception_text
from gaia.runtime.untrusted_text import one_line

_LOOPBACK = "127.0.0.1"
_PATH = "/callback"
_MAX_REQUEST = 32 * 1024
_REQUEST_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_MAX_CONNECTIONS = 16
_DONE = "You are logged in. You can close this page."
_REFUSED = "The login did not succeed. You can close this page."
_UNEXPECTED = "This is not the answer to a login that is under way."

OpenBrowser = Callable[[str], str | None]
"""Sends the person to a login page, in its own thread. Returns the redirect's URL; None if it comes to this machine."""


class BrowserLogin:
    """Sends a person to the authorization server, and waits for the redirect. For one event loop."""

    def __init__(self, open_browser: OpenBrowser, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        """The URL to which the authorization server finally redirects the browser."""
        self.is_listening = False
        """Whether `serve` receives the redirect. Otherwise `open_browser` has to return it."""
        self._open_browser = open_browser
        self._state = ""
        """Only a redirect with this `state` counts: any program on this machine can connect to `serve`."""
        self._redirect: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[object] | None] = {}
        """The open connections, oldest first, with the tasks that serve them."""

    async def begin(self, url: str) -> None:
        """Start the application's `open_browser` for `url` in a thread. Returns at once."""
        (self._state,) = parse_qs(urlsplit(url).query)["state"]
        loop = asyncio.get_running_loop()

        def run() -> None:
            redirect, failure = None, None
            try:
                redirect = self._open_browser(url)
            except Exception as error:  # noqa: BLE001 - user code may raise anything; the login has failed then
                failure = error
            except BaseException as error:  # noqa: BLE001 - SystemExit, which a future does not take as it is
                failure = RuntimeError(f"{exception_text(error)} was raised")
            # A closed loop means that the login is over.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._opened, redirect, failure)

        # The application may wait for a person as long as it likes; this thread is never joined.
        threading.Thread(target=run, name="mcp-authorization", daemon=True).start()

    async def finish(self) -> AuthorizationCodeResult:
        """Wait for the redirect. Raises `OAuthFlowError`, and the exception of `open_browser`."""
        query = parse_qs(urlsplit(await self._redirect).query, keep_blank_values=True)
        given = {key: values[0] for key, values in query.items()}
        if "error" in given:
            reason = one_line(f"{given['error']} {given.get('error_description', '')}")
            raise OAuthFlowError(f"the authorization server refused: {reason}")
        return AuthorizationCodeResult(code=given.get("code", ""), state=given.get("state"), iss=given.get("iss"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a browser or another program. When there are too many, the oldest one is closed."""
        if len(self._connections) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
        self._connections[writer] = asyncio.current_task()
        try:
            await self._answer(reader, writer)
        finally:
            self._connections.pop(writer, None)

    async def close(self) -> None:
        tasks = [task for task in self._connections.values() if task is not None]
        for writer in list(self._connections):
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
                status, text = self._requested(method, target)
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

    def _opened(self, redirect: str | None, error: Exception | None) -> None:
        if self._redirect.done():
            return
        if error is not None:
            self._redirect.set_exception(error)
        elif redirect is not None:
            self._redirect.set_result(redirect)
        elif not self.is_listening:
            self._redirect.set_exception(
                OAuthFlowError(
                    f"{self.redirect_uri} is not on this machine, so on_authorization has to return the address "
                    "that the browser was sent to"
                )
            )

    def _requested(self, method: str, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        (state,) = query.get("state", [""])[:1]
        if method != "GET" or parts.path != (urlsplit(self.redirect_uri).path or "/") or self._redirect.done():
            return "404 Not Found", _UNEXPECTED
        if not self._state or not hmac.compare_digest(state.encode(), self._state.encode()):
            return "400 Bad Request", _UNEXPECTED
        self._redirect.set_result(f"{self.redirect_uri.partition('?')[0]}?{parts.query}")
        return "200 OK", _REFUSED if "error" in query else _DONE


@contextlib.asynccontextmanager
async def browser_login(
    open_browser: OpenBrowser, redirect_uri: str | None, port: int = 0
) -> AsyncIterator[BrowserLogin]:
    """A login whose redirect goes to `redirect_uri`. Only an http URI leads to a port of this machine."""
    login = BrowserLogin(open_browser, redirect_uri or "")
    parts = urlsplit(redirect_uri or f"http://{_LOOPBACK}:{port}{_PATH}")
    if parts.scheme != "http":
        yield login
        return
    listen = partial(asyncio.start_server, login.serve, parts.hostname or _LOOPBACK, limit=_MAX_REQUEST)
    try:
        server = await listen(parts.port or 0)
    except OSError:
        if redirect_uri is not None:
            raise
        server = await listen(0)
    if redirect_uri is None:
        login.redirect_uri = f"http://{_LOOPBACK}:{server.sockets[0].getsockname()[1]}{_PATH}"
    login.is_listening = True
    try:
        yield login
    finally:
        server.close()
        await login.close()
