"""Spans and metrics of a test, and clients whose servers end with it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from tests.tracing import Metering, Tracing


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Tracing:
    return Tracing.installed(monkeypatch)


@pytest.fixture
def metering(monkeypatch: pytest.MonkeyPatch) -> Metering:
    return Metering(monkeypatch)


@pytest.fixture
def connect() -> Iterator[Callable[..., MCPClient]]:
    """Connect to a server: ``connect(config, key=value)``, with more keys of its configuration."""
    clients: list[MCPClient] = []

    def connect(config: dict[str, Any], name: str = "fault", **keys: Any) -> MCPClient:
        client = MCPClient.from_config(name, {**config, **keys})
        clients.append(client)
        assert client.connect(), client.last_error
        return client

    yield connect
    for client in clients:
        client.disconnect()
