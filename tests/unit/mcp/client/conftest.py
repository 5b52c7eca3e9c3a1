"""Clients of servers that really run."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient


@pytest.fixture
def connect() -> Iterator[Callable[..., MCPClient]]:
    """Connect to a server: ``connect(config, **more_keys_of_it)``. The client is disconnected after the test."""
    clients: list[MCPClient] = []

    def connect(config: dict[str, Any], **keys: Any) -> MCPClient:
        client = MCPClient.from_config("fault", {**config, **keys})
        clients.append(client)
        assert client.connect(), client.last_error
        return client

    yield connect
    for client in clients:
        client.disconnect()
