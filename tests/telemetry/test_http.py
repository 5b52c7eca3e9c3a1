"""What spans and metrics say of servers that are reached over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.transports.http.transport import HttpTransport
from tests.servers.http_server import ScriptedServer
from tests.tracing import Metering, Tracing, attributes_of


@pytest.fixture
def served(no_leaks: None) -> Iterator[ScriptedServer]:
    with ScriptedServer().serving() as server:
        yield server


@pytest.fixture
def client(served: ScriptedServer, tracing: Tracing, metering: Metering) -> Iterator[MCPClient]:
    with MCPClient.from_config("web", {"url": served.url}) as client:
        yield client


def network(served: ScriptedServer) -> dict[str, Any]:
    return {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "127.0.0.1",
        "server.port": int(served.url.rsplit(":", 1)[1].split("/")[0]),
    }


def test_a_span_says_where_the_server_is_and_in_which_session_and_a_metric_only_where(
    client: MCPClient, served: ScriptedServer, tracing: Tracing, metering: Metering
) -> None:
    client.call_tool("echo", {"text": "hi"})
    attributes = attributes_of(tracing.call)
    assert network(served).items() <= attributes.items()
    assert attributes["mcp.session.id"] in served.open_sessions
    context = tracing.call.context
    assert context is not None
    (call,) = served.of("tools/call")
    assert f"{context.span_id:016x}" in call.body["params"]["_meta"]["traceparent"]
    client.disconnect()
    for name in ("mcp.client.operation.duration", "mcp.client.session.duration"):
        for point in metering.points(name):
            assert network(served).items() <= dict(point.attributes).items()
            assert "mcp.session.id" not in point.attributes


def test_a_server_whose_address_is_not_known_yet_has_none() -> None:
    assert HttpTransport("${SERVER}/mcp", expand=lambda: ("${SERVER}/mcp", None)).network == {
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
