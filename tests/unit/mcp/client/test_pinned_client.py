"""`PinnedClient`: what a client offers, over one process of its server. What becomes of it: ``test_pin.py``."""

from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import NotConnected, NotOffered, SessionLost, ToolDenied
from gaia.testing import FakeServer
from tests.contract.wires import FourMethods
from tests.waiting import PATIENCE


@pytest.fixture
def client(demo_server: dict[str, Any]) -> Iterator[MCPClient]:
    with MCPClient.from_config("it", demo_server) as client:
        yield client


def test_it_calls_tools(client: MCPClient) -> None:
    with client.pinned() as handle:
        reports: list[float] = []
        result = handle.call_tool("add", {"a": 1, "b": 2}, on_progress=lambda done, *_: reports.append(done))
        assert result["structuredContent"] == {"sum": 3}
        assert handle.submit_tool("add", {"a": 1, "b": 2}).result(PATIENCE)["structuredContent"] == {"sum": 3}
        assert handle.placement is None
        assert not handle.is_lost
    assert client.status.calls == 0, "its calls are counted by themselves"


def test_it_ends(client: MCPClient) -> None:
    handle = client.pinned()
    handle.close()
    with pytest.raises(NotConnected, match="pinned"):
        handle.call_tool("add", {})
    with pytest.raises(NotConnected, match="pinned"):
        handle.read_resource("it://x")
    with pytest.raises(NotConnected, match="pinned"):
        handle.get_prompt("x")


def test_it_ends_with_the_process(client: MCPClient) -> None:
    with client.pinned() as handle:
        assert handle.call_tool("crash")["error_type"] == "session_lost"
        assert client.call_tool("counter")["structuredContent"] == {"value": 1}
        assert handle.is_lost
        assert handle.call_tool("counter")["delivery"] == "not_sent"
        with pytest.raises(SessionLost):
            handle.read_resource("it://x")


def test_filters_hold(demo_server: dict[str, Any]) -> None:
    client = MCPClient.from_config("it", {**demo_server, "disabledTools": ["add"]})
    with client, client.pinned() as handle:
        assert handle.call_tool("add", {})["error_type"] == "denied"
        with pytest.raises(ToolDenied):
            handle.submit_tool("add", {})


def test_a_transport_with_the_four_methods_alone_has_none() -> None:
    with MCPClient("it", FourMethods(FakeServer("it"), PATIENCE)) as client, pytest.raises(NotOffered, match="FourM"):
        client.pinned()
