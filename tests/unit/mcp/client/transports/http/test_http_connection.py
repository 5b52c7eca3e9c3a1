"""One connection at a time: used again, and torn down under a thread that waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from gaia.mcp.client.transports.http.http_connection import HttpConnection, Interrupted
from tests.servers.http_server import Exchange, ScriptedServer
from tests.unit.mcp.client.transports.http.conftest import Serve
from tests.waiting import PATIENCE


@pytest.fixture
def connection(no_leaks: None) -> Iterator[HttpConnection]:
    connection = HttpConnection(lambda: httpx2.Client(timeout=None))
    yield connection
    connection.close()


def get(connection: HttpConnection, server: ScriptedServer) -> bytes:
    with connection.request("GET", httpx2.URL(server.url), {}) as response:
        return response.read()


def test_there_is_no_client_before_the_first_request() -> None:
    connection = HttpConnection(lambda: pytest.fail("nothing is to be sent"))
    connection.interrupt()
    connection.close()


def test_a_response_that_was_read_leaves_the_connection_to_the_next_request(
    serve: Serve, connection: HttpConnection
) -> None:
    ports = []

    def answer(exchange: Exchange) -> None:
        ports.append(exchange._handler.client_address[1])
        exchange.body(b"hello")

    server = serve(on={"GET": answer})
    assert [get(connection, server) for _ in range(2)] == [b"hello", b"hello"]
    assert ports[0] == ports[1]


class TestInterrupt:
    @pytest.mark.parametrize("begun", [False, True])
    def test_a_thread_that_waits_for_the_response_or_the_rest_of_it_is_woken(
        self, serve: Serve, connection: HttpConnection, begun: bool
    ) -> None:
        left: queue.SimpleQueue[bool] = queue.SimpleQueue()

        def hang(exchange: Exchange) -> None:
            if begun:
                exchange.begin_stream()
                exchange.chunk(b"half")
            waiting.set()
            left.put(exchange.wait_for_client_to_leave())

        server, waiting = serve(on={"GET": hang}), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(get, connection, server)
            assert waiting.wait(PATIENCE)
            connection.interrupt()
            assert isinstance(request.exception(PATIENCE), httpx2.TransportError)
        del server.on["GET"]
        server.outbox.put(None)
        assert get(connection, server) == b"", "the next request has a new connection"
        assert left.get(timeout=PATIENCE)

    def test_a_request_without_a_connection_fails_as_soon_as_it_has_one(self, serve: Serve) -> None:
        def new_client() -> httpx2.Client:
            connection.interrupt()
            return httpx2.Client(timeout=None)

        server = serve(on={"GET": lambda exchange: exchange.body(b"hello")})
        connection = HttpConnection(new_client)
        with pytest.raises(httpx2.TransportError):
            get(connection, server)
        assert server.seen == []
        assert get(connection, server) == b"hello"
        connection.close()

    def test_a_request_that_is_given_up_before_its_first_byte_is_not_sent(
        self, serve: Serve, connection: HttpConnection
    ) -> None:
        def refuse() -> None:
            raise Interrupted

        server = serve(on={"GET": lambda exchange: exchange.body(b"hello")})
        with (
            pytest.raises(Interrupted),
            connection.request("GET", httpx2.URL(server.url), {}, on_sending=refuse),
        ):
            pytest.fail("there is no response")
        assert get(connection, server) == b"hello"
        assert server.methods() == ["GET"]
