"""`PinnedClient` over a server that is placed by an engine in this process.

What becomes of a replica is tested with replicas: ``tests/unit/mcp/cluster/test_replicated_server.py``.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.cluster.wire import Launch
from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import NotConnected, ToolDenied
from gaia.mcp.tools.tool_filter import ToolFilter
from tests.hosts import LocalEngine
from tests.waiting import PATIENCE


@pytest.fixture
def client(demo_server: dict[str, Any]) -> Iterator[MCPClient]:
    engine = LocalEngine()
    launch = Launch(command=demo_server["command"], args=demo_server["args"])
    transport = PlacedTransport(Placement(), PATIENCE, lambda: launch, lambda: engine)
    with MCPClient("it", transport) as client:
        yield client
    engine.close()


def test_it_calls_tools(client: MCPClient) -> None:
    with client.pinned() as handle:
        reports: list[float] = []
        result = handle.call_tool("add", {"a": 1, "b": 2}, on_progress=lambda done, *_: reports.append(done))
        assert result["structuredContent"] == {"sum": 3}
        assert handle.submit_tool("add", {"a": 1, "b": 2}).result(PATIENCE)["structuredContent"] == {"sum": 3}
        assert handle.placement is not None
        assert handle.placement.node_id == "node-1"
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


def test_filters_hold(demo_server: dict[str, Any]) -> None:
    engine = LocalEngine()
    launch = Launch(command=demo_server["command"], args=demo_server["args"])
    transport = PlacedTransport(Placement(), PATIENCE, lambda: launch, lambda: engine)
    with MCPClient("it", transport, tool_filter=ToolFilter(deny=["add"])) as client, client.pinned() as handle:
        assert handle.call_tool("add", {})["error_type"] == "denied"
        with pytest.raises(ToolDenied):
            handle.submit_tool("add", {})
    engine.close()
