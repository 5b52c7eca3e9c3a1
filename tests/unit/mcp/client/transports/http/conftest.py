"""Scripted servers, and clients of them."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp import MCPClient
from tests.servers.http_server import LEGACY, MODERN, ScriptedServer

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
TEXT = {"content": [{"type": "text", "text": "hi"}]}

Serve = Callable[..., ScriptedServer]
Connect = Callable[..., MCPClient]


def text_of(result: dict[str, Any]) -> Any:
    """The text of a tool's result."""
    return result["content"][0]["text"]


def threads() -> list[str]:
    """The names of all threads of HTTP channels."""
    return [thread.name for thread in threading.enumerate() if "-http-" in thread.name]


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
