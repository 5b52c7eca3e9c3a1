"""The C echo server over HTTP answers like a server, in whatever pieces a client sends its requests."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import echo_server
from benchmarks.http_echo_server import HttpEchoServer
from tests.waiting import PATIENCE

CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}'
RESULT = {"content": [{"type": "text", "text": "x"}], "isError": False}


@pytest.fixture(params=[False, True], ids=["JSON", "events"])
def server(request: pytest.FixtureRequest, starts_processes: None) -> Iterator[HttpEchoServer]:
    try:
        with HttpEchoServer(events=request.param) as server:
            yield server
    except echo_server.NoCompiler as reason:
        pytest.skip(str(reason))


@contextlib.contextmanager
def connected(server: HttpEchoServer) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.connect()
        yield connection


def message_of(response: http.client.HTTPResponse) -> Any:
    """The message of the answer, in JSON or as the one event of a stream."""
    assert response.status == 200
    text = response.read().decode()
    if response.headers["Content-Type"] == "text/event-stream":
        event, data, *rest = text.split("\r\n")
        assert (event, rest) == ("event: message", ["", ""])
        text = data.removeprefix("data: ")
    return json.loads(text)


def posted(connection: http.client.HTTPConnection, body: bytes, **options: Any) -> Any:
    connection.request("POST", "/mcp", body, {"Content-Type": "application/json"}, **options)
    return message_of(connection.getresponse())


def test_keeps_a_connection_for_all_requests(server: HttpEchoServer) -> None:
    with connected(server) as connection:
        port = connection.sock.getsockname()
        hello = b'{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}'
        assert posted(connection, hello)["result"]["protocolVersion"] == "2025-06-18"
        connection.request("POST", "/mcp", b'{"method":"notifications/initialized"}')
        accepted = connection.getresponse()
        assert (accepted.status, accepted.read()) == (202, b"")
        assert [tool["name"] for tool in posted(connection, b'{"id":2,"method":"tools/list"}')["result"]["tools"]] == [
            "echo"
        ]
        assert posted(connection, CALL) == {"jsonrpc": "2.0", "id": 7, "result": RESULT}
        assert connection.sock.getsockname() == port


def test_has_no_stream_of_its_own_and_no_sessions(server: HttpEchoServer) -> None:
    with connected(server) as connection:
        for verb, status in (("GET", 405), ("DELETE", 200)):
            connection.request(verb, "/mcp")
            response = connection.getresponse()
            assert (response.status, response.read()) == (status, b"")


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 2**20])
def test_reads_bodies_in_chunks(server: HttpEchoServer, size: int) -> None:
    body = CALL.replace(b'"x"', b'"%b"' % (b"x" * size))
    with connected(server) as connection:
        for length in (1000, 7000):
            chunks = (body[at : at + length] for at in range(0, len(body), length))
            answer = posted(connection, chunks, encode_chunked=True)  # type: ignore[arg-type]
            assert len(answer["result"]["content"][0]["text"]) == size


def test_reads_requests_that_arrive_in_pieces_or_together(server: HttpEchoServer) -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: here\r\ncontent-length: %d\r\n\r\n" % len(CALL)
    with connected(server) as connection:
        for piece in (head[:10], head[10:-2], head[-2:] + CALL[:5], CALL[5:] + head + CALL):
            connection.sock.sendall(piece)
        for _ in range(2):
            response = http.client.HTTPResponse(connection.sock, method="POST")
            # The reader of the first response must not take bytes of the second one.
            response.fp = connection.sock.makefile("rb", buffering=0)  # type: ignore[assignment]
            response.begin()
            assert message_of(response)["result"] == RESULT


def test_asks_for_a_body_that_is_announced(server: HttpEchoServer) -> None:
    head = b"POST /mcp HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(CALL)
    with connected(server) as connection:
        connection.sock.sendall(head)
        assert connection.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sock.sendall(CALL)
        assert connection.sock.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "request_head",
    [
        b"junk\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nno header\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxxx\r\n",
    ],
)
def test_ends_the_connection_after_what_is_no_request(server: HttpEchoServer, request_head: bytes) -> None:
    with connected(server) as connection:
        connection.sock.sendall(request_head)
        assert connection.sock.recv(1000).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert connection.sock.recv(1000) == b""


def test_goes_on_after_clients_that_leave(server: HttpEchoServer) -> None:
    with connected(server) as leaving:
        leaving.sock.sendall(b"POST /mcp HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
    with connected(server) as leaving:
        # The answer goes to a connection that was reset.
        leaving.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        leaving.sock.sendall(b"POST /mcp HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(CALL), CALL))
    with connected(server) as connection:
        assert posted(connection, CALL)["result"] == RESULT


def test_ends_a_connection_when_it_is_asked_to(server: HttpEchoServer) -> None:
    with connected(server) as connection:
        connection.sock.sendall(b"DELETE /mcp HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert connection.sock.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        assert connection.sock.recv(1000) == b""


def test_has_many_connections(server: HttpEchoServer) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(server)) for _ in range(200)]
        for connection in connections:
            connection.request("POST", "/mcp", CALL)
        for connection in reversed(connections):
            assert message_of(connection.getresponse())["result"] == RESULT
