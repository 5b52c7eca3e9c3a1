"""Scripted servers, and clients of them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp import MCPClient
from tests.servers.http_server import ScriptedServer

Serve = Callable[..., ScriptedServer]
Connect = Callable[..., MCPClient]


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
