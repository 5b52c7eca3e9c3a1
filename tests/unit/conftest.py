"""Clients of servers that really run."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient


@pytest.fixture
def connect() -> Iterator[Callable[..., MCPClient]]:
    """Connect to a server: ``connect(config, key=value)``, with more keys of its configuration.

    The client is disconnected after the test.
    """
    clients: list[MCPClient] = []

    def connect(config: dict[str, Any], name: str = "fault", **keys: Any) -> MCPClient:
        client = MCPClient.from_config(name, {**config, **keys})
        clients.append(client)
        assert client.connect(), client.last_error
        return client

    yield connect
    for client in clients:
        client.disconnect()
