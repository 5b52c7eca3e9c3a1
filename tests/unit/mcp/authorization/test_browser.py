"""The redirect of a browser back to a port of this machine, and what other programs that connect to it achieve."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

from gaia.mcp.authorization import browser
from gaia.mcp.authorization.browser import BrowserLogin, OpenBrowser, browser_login

STATE = "s-1"
AUTHORIZE = f"https://login.example.com/authorize?state={STATE}"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10.0))


async def send(login: BrowserLogin, data: bytes) -> bytes:
    """What the port answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(login.redirect_uri).port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def visit(login: BrowserLogin, query: str, path: str = "/callback", method: str = "GET") -> str:
    """The status of a request."""
    answer = await send(login, f"{method} {path}?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return answer.split(b"\r\n", 1)[0].decode()


@contextlib.asynccontextmanager
async def begun(open_browser: OpenBrowser = lambda _: None) -> AsyncIterator[BrowserLogin]:
    """A login for which the browser has been sent to the authorization server."""
    async with browser_login(open_browser, None) as login:
        await login.begin(AUTHORIZE)
        yield login


class TestRedirect:
    def test_many_half_requests_do_not_keep_the_browser_out(self) -> None:
        async def test() -> None:
            async with begun() as login, contextlib.AsyncExitStack() as opened:
                for _ in range(100):
                    _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(login.redirect_uri).port)
                    opened.callback(writer.close)
                    writer.write(b"GET /callback?")
                assert await visit(login, f"code=c&state={STATE}") == "HTTP/1.1 200 OK"
                assert len(login._connections) <= browser._MAX_CONNECTIONS

        run(test)

    def test_the_code_of_the_redirect_is_the_result(self) -> None:
        async def test() -> None:
            async with begun() as login:
                assert await visit(login, f"code=c&state={STATE}&iss=https%3A%2F%2Fx") == "HTTP/1.1 200 OK"
                assert await login.finish() == AuthorizationCodeResult(code="c", state=STATE, iss="https://x")

        run(test)

    def test_a_refusal_is_an_error_on_one_line(self) -> None:
        async def test() -> None:
            async with begun() as login:
                query = f"error=access_denied&error_description=not%0A%1B[2Jyou&state={STATE}"
                assert await visit(login, query) == "HTTP/1.1 200 OK"
                with pytest.raises(OAuthFlowError, match="the authorization server refused: access_denied") as error:
                    await login.finish()
                assert str(error.value).isprintable()

        run(test)

    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (("code=c&state=other",), "HTTP/1.1 400 Bad Request"),
            (("code=c&state=",), "HTTP/1.1 400 Bad Request"),
            (("code=c",), "HTTP/1.1 400 Bad Request"),
            ((f"code=c&state={STATE}", "/favicon.ico"), "HTTP/1.1 404 Not Found"),
            ((f"code=c&state={STATE}", "/callback", "POST"), "HTTP/1.1 404 Not Found"),
        ],
    )
    def test_any_other_request_changes_nothing(self, request_: tuple[str, ...], status: str) -> None:
        async def test() -> None:
            async with begun() as login:
                assert await visit(login, *request_) == status
                assert await visit(login, f"code=real&state={STATE}") == "HTTP/1.1 200 OK"
                assert (await login.finish()).code == "real"

        run(test)

    def test_before_a_login_begins_no_state_is_right(self) -> None:
        async def test() -> None:
            async with browser_login(lambda _: None, None) as login:
                assert await visit(login, "code=c&state=") == "HTTP/1.1 400 Bad Request"

        run(test)

    def test_the_first_redirect_counts(self) -> None:
        async def test() -> None:
            async with begun() as login:
                await visit(login, f"code=first&state={STATE}")
                assert await visit(login, f"code=second&state={STATE}") == "HTTP/1.1 404 Not Found"
                assert (await login.finish()).code == "first"

        run(test)

    @pytest.mark.parametrize(
        "data",
        [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"x" * 100_000],
        ids=["blank", "short", "not ASCII", "too long"],
    )
    def test_what_is_no_request_is_not_answered(self, data: bytes) -> None:
        async def test() -> None:
            problems: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            async with begun() as login:
                with contextlib.suppress(ConnectionError):
                    assert await send(login, data) == b""
                assert await visit(login, f"code=c&state={STATE}") == "HTTP/1.1 200 OK"
            assert problems == []

        run(test)

    def test_a_connection_that_says_nothing_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(browser, "_REQUEST_SECONDS", 0.01)

        async def test() -> None:
            async with begun() as login:
                assert await send(login, b"GET /callback") == b""

        run(test)


class TestApplication:
    def test_it_may_return_the_address_of_the_redirect(self) -> None:
        async def test() -> None:
            opened: list[str] = []

            def open_browser(url: str) -> str:
                opened.append(url)
                return f"https://app.example.com/back?code=c&state={STATE}"

            async with browser_login(open_browser, "https://app.example.com/back") as login:
                await login.begin(AUTHORIZE)
                assert await login.finish() == AuthorizationCodeResult(code="c", state=STATE, iss=None)
            assert opened == [AUTHORIZE]

        run(test)

    def test_what_it_raises_ends_the_login(self) -> None:
        async def test() -> None:
            def open_browser(_: str) -> None:
                raise LookupError("no browser")

            async with begun(open_browser) as login:
                with pytest.raises(LookupError, match="no browser"):
                    await login.finish()

        run(test)

    def test_without_a_port_of_this_machine_it_has_to_return_an_address(self) -> None:
        async def test() -> None:
            async with browser_login(lambda _: None, "https://app.example.com/back") as login:
                await login.begin(AUTHORIZE)
                with pytest.raises(OAuthFlowError, match="on_authorization has to return the address"):
                    await login.finish()

        run(test)


class TestPort:
    def test_it_is_one_of_this_machine_alone_and_closed_afterwards(self) -> None:
        async def test() -> None:
            async with browser_login(lambda _: None, None) as login:
                parts = urlsplit(login.redirect_uri)
                assert (parts.scheme, parts.hostname, parts.path) == ("http", "127.0.0.1", "/callback")
            with pytest.raises(OSError, match="Connect"):
                await visit(login, "code=c")

        run(test)

    def test_a_preferred_port_that_is_taken_is_replaced(self) -> None:
        async def test() -> None:
            with socket.create_server(("127.0.0.1", 0)) as other:
                taken = other.getsockname()[1]
                async with browser_login(lambda _: None, None, taken) as login:
                    assert urlsplit(login.redirect_uri).port not in (taken, None)

        run(test)

    def test_a_configured_port_that_is_taken_is_an_error(self) -> None:
        async def test() -> None:
            with socket.create_server(("127.0.0.1", 0)) as other:
                uri = f"http://127.0.0.1:{other.getsockname()[1]}/back"
                with pytest.raises(OSError, match="address"):
                    async with browser_login(lambda _: None, uri):
                        raise AssertionError("not reached")

        run(test)
