"""Scripted servers, and clients of them."""

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gaia.http.request import HttpSettings
from gaia.http.response import Response
from gaia.http.response_parser import ResponseParser
from gaia.mcp import MCPClient
from tests.servers.http_server import LEGACY, MODERN, Exchange, ScriptedServer
from tests.unit.http.conftest import certificate, io, server_side  # noqa: F401 - fixtures

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
TEXT = {"content": [{"type": "text", "text": "hi"}]}

Serve = Callable[..., ScriptedServer]
Connect = Callable[..., MCPClient]


def a_response(status: int = 200, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Response:
    """What a server answered, all of which has come."""
    parser = ResponseParser()
    parser.begin()
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    parser.feed(f"HTTP/1.1 {status} Said\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)

    async def nothing_is_left() -> None:
        raise AssertionError("all of it has come")

    return Response(parser, HttpSettings(), nothing_is_left, lambda: None)


def text_of(result: dict[str, Any]) -> Any:
    """The text of a tool's result."""
    return result["content"][0]["text"]


def threads() -> list[str]:
    """The names of all threads of our HTTP."""
    return [thread.name for thread in threading.enumerate() if re.search("gaia-http|-http-login", thread.name)]


class Hang:
    """Calls that are never ended: after `begin`, which may answer, the server waits until the client leaves."""

    def __init__(
        self, server: ScriptedServer, begin: Callable[[Exchange], object] = bool, method: str = "tools/call"
    ) -> None:
        self.reached: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.left: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._begin = begin
        server.on[method] = self._hang

    def _hang(self, exchange: Exchange) -> None:
        self._begin(exchange)
        self.reached.put(None)
        self.left.put(exchange.wait_for_client_to_leave())


def answer_in_a_stream(exchange: Exchange) -> None:
    """Say the answer, and do not end the stream."""
    exchange.begin_stream()
    exchange.event(exchange.answer(TEXT))


@pytest.fixture
def serve(no_leaks: None) -> Iterator[Serve]:
    """Start a scripted server: the keywords are the fields of `ScriptedServer`."""
    with contextlib.ExitStack() as stack:
        yield lambda **fields: stack.enter_context(ScriptedServer(**fields).serving())


@pytest.fixture
def connect(serve: Serve) -> Iterator[Connect]:
    """Connect a client to a server. The keywords are keys of its configuration."""
    with contextlib.ExitStack() as stack:

        def connected(server: ScriptedServer, **config: Any) -> MCPClient:
            client = MCPClient.from_config("web", {"url": server.url, **config})
            stack.callback(client.disconnect)
            assert client.connect(), client.last_error
            return client

        yield connected


@pytest.fixture
def server(serve: Serve) -> ScriptedServer:
    """A server of the handshake era that does what it should."""
    return serve()


@pytest.fixture
def client(connect: Connect, server: ScriptedServer) -> MCPClient:
    """Connected to `server`."""
    return connect(server)
