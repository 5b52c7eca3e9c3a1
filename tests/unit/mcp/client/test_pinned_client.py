"""`PinnedClient` over a server that is placed by an engine in this process.

What becomes of a replica is tested with replicas: ``tests/unit/mcp/cluster/test_replicated_server.py``.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.client.session import BoundSession
from gaia.mcp.cluster.bound_calls import BoundCalls
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.cluster.wire import Launch
from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import NotConnected, ToolDenied
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.testing import FakeClock
from tests.hosts import LocalEngine
from tests.supervised import made
from tests.unit.mcp.cluster.test_placed_calls import Server
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


@pytest.fixture
def session() -> Iterator[BoundSession]:
    server = Server()
    of_client: Any = SimpleNamespace(profile="its profile", timeout=5.0)
    session = BoundSession(of_client, BoundCalls(server.calls, server.calls.bind(), None), FakeClock())
    yield session
    server.calls.close()
    assert session.is_lost


def test_it_is_the_clients_but_for_the_way_of_its_requests(session: BoundSession) -> None:
    assert (session.profile, session.timeout) == ("its profile", 5.0)
    assert session.is_connected()


def test_a_closed_one_makes_no_requests(session: BoundSession) -> None:
    session.close()
    with pytest.raises(NotConnected):
        made(session, RequestExchange("tools/call", {"name": "add"}))
