"""Slow and numerous clients of an HTTP server, over real sockets."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.serving.http import BackgroundServer
from gaia.serving.options import HttpOptions
from tests.unit.serving.test_http import background, got, hello
from tests.waiting import PATIENCE, wait_until

HALF_HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body before it answers; for /large, with more than any buffer takes."""
    if scope["type"] == "lifespan":
        await hello(scope, receive, send)
        return
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    body = b"x" * 20_000_000 if scope["path"] == "/large" else b"hello"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def connections(server: BackgroundServer, number: int, first: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that have sent `first`."""
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(connected(server, first)) for _ in range(number)]


@contextlib.contextmanager
def connected(server: BackgroundServer, first: bytes) -> Iterator[socket.socket]:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(first)
        yield connection


def answer(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class TestNumber:
    @pytest.mark.parametrize("first", [b"", HALF_HEAD, HEAD + b"half"], ids=["silent", "half a head", "half a body"])
    def test_hundreds_of_half_requests_do_not_keep_others_from_an_answer(self, first: bytes) -> None:
        with background(HttpOptions(port=0, max_connections=20), echo) as server, connections(server, 100, first):
            for _ in range(20):
                assert got(server.url)[:2] == (200, b"hello")

    def test_the_oldest_goes_first(self) -> None:
        with (
            background(HttpOptions(port=0, max_connections=3), echo) as server,
            connections(server, 2, HALF_HEAD) as (oldest, other),
            connected(server, b""),
            connected(server, b""),
        ):
            assert wait_until(lambda: is_closed(oldest))
            assert not is_closed(other)

    def test_complete_requests_are_not_dropped_for_others(self) -> None:
        answered = threading.Event()

        async def waits(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                with contextlib.suppress(TimeoutError):
                    await wait_for(answered)
            await hello(scope, receive, send)

        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with (
            background(HttpOptions(port=0, max_connections=2), waits) as server,
            connections(server, 2, request) as complete,
        ):
            # A server that has not yet read the others' requests drops one of them instead.
            assert wait_until(lambda: len(server._server.server_state.tasks) == 2)
            with connected(server, request) as third:
                assert answer(third).startswith(b"HTTP/1.1 503 ")
            answered.set()
            assert all(answer(connection).endswith(b"hello") for connection in complete)


async def wait_for(event: threading.Event) -> None:
    await asyncio.to_thread(event.wait, PATIENCE)


class TestTime:
    @pytest.fixture(autouse=True)
    def looks_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gaia.serving.connections._SWEEP_SECONDS", 0.02)

    def test_a_head_has_a_deadline_however_many_bytes_arrive(self) -> None:
        with (
            background(HttpOptions(port=0, head_timeout=0.1), echo) as server,
            connected(server, HALF_HEAD) as connection,
        ):
            connection.settimeout(0.02)
            received = b""
            with contextlib.suppress(ConnectionError):
                while not received:
                    connection.sendall(b"a")
                    with contextlib.suppress(TimeoutError):
                        received = connection.recv(65536) or b"closed"
            assert received.startswith((b"HTTP/1.1 408 ", b"closed"))

    @pytest.mark.parametrize(
        ("options", "first", "slow"),
        [
            ({"head_timeout": 0.1}, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", HALF_HEAD),
            ({"body_timeout": 0.1}, b"", HEAD + b"half"),
        ],
        ids=["that of a later request", "a body"],
    )
    def test_so_has(self, options: dict[str, Any], first: bytes, slow: bytes) -> None:
        with background(HttpOptions(port=0, **options), echo) as server, connected(server, first) as connection:
            received = b""
            while first and b'"ok"' not in received:
                received += connection.recv(65536)
            connection.sendall(slow)
            assert answer(connection).startswith(b"HTTP/1.1 408 ")

    def test_a_request_that_is_being_worked_on_has_none(self) -> None:
        waiting = threading.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                # Both deadlines pass meanwhile.
                await asyncio.sleep(0.2)
                waiting.set()
            await hello(scope, receive, send)

        with background(HttpOptions(port=0, head_timeout=0.05, body_timeout=0.05), slow) as server:
            assert got(server.url)[:2] == (200, b"hello")
        assert waiting.is_set()

    def test_a_response_that_is_not_read_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gaia.serving.http_protocol.STALLED_SECONDS", 0.1)
        request = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with background(HttpOptions(port=0), echo) as server, connected(server, request):
            assert wait_until(lambda: len(server._server.server_state.connections) == 1)
            assert wait_until(lambda: not server._server.server_state.connections)


class TestSize:
    def test_a_head_without_an_end_is_refused(self) -> None:
        with background(app=echo) as server, connected(server, HALF_HEAD) as connection:
            with contextlib.suppress(ConnectionError):
                for _ in range(100):
                    connection.sendall(b"a" * 10_000)
            assert answer(connection)[:13] in (b"HTTP/1.1 431 ", b"")

    @pytest.mark.parametrize("headers", [b"X: a\r\n" * 101, b"X: " + b"a" * 33_000 + b"\r\n"])
    def test_so_are_many_and_long_headers_that_arrive_at_once(self, headers: bytes) -> None:
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + b"\r\n"
        with background(app=echo) as server, connected(server, request) as connection:
            assert answer(connection)[:13] in (b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")

    def test_a_body_with_two_lengths_is_refused(self) -> None:
        both = HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        with background(app=echo) as server, connected(server, both + HEAD) as connection:
            answered = answer(connection)
        assert answered.startswith(b"HTTP/1.1 400 ")
        assert answered.count(b"HTTP/1.1") == 1

    def test_an_upgrade_to_a_websocket_is_no_way_around_the_guard(self) -> None:
        upgrade = (
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a\r\n\r\n"
        )
        request = b"GET / HTTP/1.1\r\nHost: evil.example\r\n" + upgrade
        with background(app=echo) as server, connected(server, request) as connection:
            assert connection.recv(65536).startswith(b"HTTP/1.1 421 ")
