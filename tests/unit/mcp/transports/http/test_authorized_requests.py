"""Requests with an authorization, over real connections: what is sent, how often, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import httpx2
import pytest

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import IoThread
from gaia.http.request import HttpSettings
from gaia.http.url import Url
from gaia.http.waits import run
from gaia.mcp.errors import NeedsAuthorization
from gaia.mcp.transports.http.authorized_requests import AuthorizedRequests
from gaia.runtime.threads import DaemonPool
from tests.servers.http_server import PATIENCE, Exchange, ScriptedServer
from tests.unit.http.conftest import BlockingResponse, on_io
from tests.unit.mcp.transports.http.conftest import Serve

Flow = Generator[str | None, tuple[int, str | None], None]


class Tokens:
    """Shows no token at first, and another one after each refusal; a `RequestAuthorization`."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = tokens
        self.refusals: list[tuple[int, str | None]] = []
        self.ready: tuple[bool, str | None] = (False, None)
        self.revisions: list[str | None] = []

    def ready_login(self) -> tuple[bool, str | None]:
        return self.ready

    def login_flow(self, revision: str | None) -> Flow:
        self.revisions.append(revision)
        for token in (None, *self.tokens):
            refusal = yield token
            if refusal[0] != 401:
                return
            self.refusals.append(refusal)
        raise NeedsAuthorization("no token is left", delivery="not_sent")


@pytest.fixture
def connection(no_leaks: None) -> Iterator[HttpConnection]:
    connection = HttpConnection(HttpSettings(headers={"X-Key": "secret"}))
    yield connection
    connection.close()


def admit(token: str) -> Callable[[Exchange], None]:
    """Let in those who show this token, and tell each what it showed."""

    def answer(exchange: Exchange) -> None:
        shown = exchange.seen.headers.get("authorization")
        if shown == token:
            exchange.body(b"welcome", headers={"Set-Cookie": "a=1"})
        else:
            exchange.body(b"no", status=401, headers={"WWW-Authenticate": f"Bearer error={shown}"})

    return answer


@pytest.fixture
def threads(no_leaks: None) -> Iterator[DaemonPool]:
    pool = DaemonPool("logins", 2)
    yield pool
    assert pool.close(PATIENCE)


Post = Callable[..., BlockingResponse]


@pytest.fixture(params=["in this thread", "on the I/O thread"])
def post(
    request: pytest.FixtureRequest,
    connection: HttpConnection,
    threads: DaemonPool,
    io: IoThread,
) -> Callable[..., BlockingResponse]:
    """Send a message. With the I/O thread, what the authorization does runs on other threads."""

    def send(server: ScriptedServer, auth: Tokens | httpx2.Auth, **hooks: Any) -> BlockingResponse:
        headers = {"Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25"}
        requests = AuthorizedRequests(auth, threads)
        exchange = requests(connection, "POST", Url.parse(server.url), headers, b'{"method": "x"}', **hooks)
        here = request.param == "in this thread"
        return BlockingResponse(run(exchange) if here else on_io(io, exchange)[1].result(PATIENCE))

    return send


class TestOurs:
    def test_a_request_that_is_let_in_is_sent_once(self, serve: Serve, post: Post) -> None:
        server, auth = serve(on={"x": lambda exchange: exchange.body(b"welcome")}), Tokens()
        with post(server, auth) as response:
            assert response.read() == b"welcome"
        (seen,) = server.of("x")
        assert "authorization" not in seen.headers
        assert auth.revisions == ["2025-11-25"]

    def test_one_that_is_refused_is_sent_with_the_next_token(self, serve: Serve, post: Post) -> None:
        server, auth = serve(on={"x": admit("Bearer 2")}), Tokens("Bearer 1", "Bearer 2")
        events: list[object] = []
        with post(server, auth, on_sending=lambda: events.append("send"), on_status=events.append) as response:
            assert (response.status, response.read()) == (200, b"welcome")
        assert [seen.headers.get("authorization") for seen in server.of("x")] == [None, "Bearer 1", "Bearer 2"]
        assert auth.refusals == [(401, "Bearer error=None"), (401, "Bearer error=Bearer 1")]
        assert events == ["send", 401, "send", 401, "send", 200]

    def test_what_the_authorization_raises_comes_out(self, serve: Serve, post: Post) -> None:
        server = serve(on={"x": admit("Bearer 2")})
        with pytest.raises(NeedsAuthorization):
            post(server, Tokens("Bearer 1"))
        with post(server, Tokens("Bearer 2")) as response:
            assert response.status == 200, "the connection can be used afterwards"

    @pytest.mark.parametrize("known", [None, "Bearer 1", "Bearer old"])
    def test_one_that_is_ready_is_sent_with_what_is_known(self, known: str | None, serve: Serve, post: Post) -> None:
        """What the flow begins with is not sent again if the server has just refused it."""
        server, auth = serve(on={"x": admit("Bearer 1")}), Tokens("Bearer 1")
        auth.ready = (True, known)
        with post(server, auth) as response:
            assert response.read() == b"welcome"
        sent = [seen.headers.get("authorization") for seen in server.of("x")]
        assert sent == {None: [None, "Bearer 1"], "Bearer 1": ["Bearer 1"]}.get(known, [known, None, "Bearer 1"])


class TestOfHttpx:
    def test_it_puts_headers_on_the_request(self, serve: Serve, post: Post) -> None:
        server = serve(on={"x": admit("Basic bWU6c2VjcmV0")})
        with post(server, httpx2.BasicAuth("me", "secret")) as response:
            assert response.read() == b"welcome"
        (seen,) = server.of("x")
        assert (seen.headers["content-length"], seen.headers["host"]) == ("15", Url.parse(server.url).authority)

    def test_it_sees_the_response_and_may_send_the_request_again(self, serve: Serve, post: Post) -> None:
        class Second(httpx2.Auth):
            requires_response_body = True

            def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
                response = yield request
                assert (response.text, response.headers["www-authenticate"]) == ("no", "Bearer error=None")
                request.headers["Authorization"] = "Bearer 2"
                response = yield request
                assert response.content == b"welcome"
                assert response.headers.get_list("set-cookie") == ["a=1"]

        server = serve(on={"x": admit("Bearer 2")})
        events: list[object] = []
        with post(server, Second(), on_sending=lambda: events.append("send"), on_status=events.append) as response:
            assert response.read() == b"welcome", "what it has read can still be read"
        assert events == ["send", 401, "send", 200]

    def test_its_own_requests_are_not_those_of_the_message(self, serve: Serve, post: Post) -> None:
        issuer = serve(on={"POST": lambda exchange: exchange.body(b"token", headers={"Set-Cookie": "b=2"})})
        server = serve(on={"x": admit("token")})

        class Fetch(httpx2.Auth):
            requires_response_body = True

            def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
                response = yield httpx2.Request("POST", issuer.url, data={"grant": "a b"})
                request.headers["Authorization"] = response.text
                yield request

        events: list[object] = []
        with post(server, Fetch(), on_sending=lambda: events.append("send"), on_status=events.append) as response:
            assert response.read() == b"welcome"
        assert events == ["send", 200]
        (asked,) = issuer.seen
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        assert "x-key" not in asked.headers, "it is for the server alone"
        (seen,) = server.of("x")
        assert seen.headers["x-key"] == "secret"
