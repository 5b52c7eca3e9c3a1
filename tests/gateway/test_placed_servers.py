"""A gateway in front of servers that are placed elsewhere: what their clients see is that of local servers."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client

from gaia.mcp.client import MCPClientManager
from gaia.mcp.cluster import transport
from tests.gateway.running import running
from tests.gateway.test_questions import CALLBACKS, HANDSHAKE, each_combination, said
from tests.hosts import LocalEngine
from tests.servers import asking_server
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    engine = LocalEngine()
    monkeypatch.setattr(transport, "_ray", lambda: engine)
    yield engine
    engine.close()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_tools_are_listed_and_called(mode: str, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    async def use() -> None:
        servers = {"demo": {**demo_server, "placement": {}}}
        async with running(servers) as url, Client(f"{url}/mcp/demo", mode=mode) as client:
            assert "add" in [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"sum": 3}
            failed = await client.call_tool("fail", {"message": "no"})
            assert failed.is_error
            reports: list[float] = []

            async def progressed(progress: float, _total: float | None, _message: str | None) -> None:
                reports.append(progress)

            await client.call_tool("sleep", {"seconds": 0.2}, progress_callback=progressed)
            assert reports

    asyncio.run(use())
    assert engine.link is not None
    assert engine.link.is_gone


@pytest.mark.slow
@each_combination
async def test_a_placed_server_asks_the_client(
    mode: str, revision: str, engine: LocalEngine, starts_processes: None
) -> None:
    server = {"command": sys.executable, "args": [asking_server.__file__], "protocol": revision, "placement": {}}
    async with running({"asks": server}) as url, Client(f"{url}/mcp/asks", mode=mode, **CALLBACKS) as client:
        if revision == HANDSHAKE:
            assert await said(client, "ask_form") == "Cleo is 30"
            assert await said(client, "ask_model") == "small: Paris"
        else:
            assert await said(client, "greet") == "Paris Cleo, file:///here, asked"
            assert await said(client, "count", {"rounds": 3}) == "3"


@pytest.mark.usefixtures("engine")
def test_a_server_moves_to_a_cluster_and_back(demo_server: dict[str, Any]) -> None:
    with MCPClientManager({"demo": demo_server}) as manager:

        def place() -> Any:
            return manager.status()[0].placement

        assert place() is None
        for placement in ({"placement": {}}, {"placement": {"maxPending": 2}}, {}):
            applied = manager.apply({"demo": {**demo_server, **placement}})
            assert applied.replaced == ("demo",)
            assert (place() is not None) is bool(placement)
            assert not manager.call_tool("mcp_demo_add", {"a": 1, "b": 2}).is_error
        assert manager.apply({}).removed == ("demo",)


def test_each_session_has_a_place_of_its_own(engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    async def count(client: Client) -> Any:
        return (await client.call_tool("counter", {})).structured_content

    async def use() -> None:
        servers = {"demo": {**demo_server, "placement": {}, "instances": "per-session"}}
        async with (
            running(servers) as url,
            Client(f"{url}/mcp/demo", mode="legacy") as one,
            Client(f"{url}/mcp/demo", mode="legacy") as other,
        ):
            assert await count(one) == {"value": 1}
            assert await count(one) == {"value": 2}
            assert await count(other) == {"value": 1}

    asyncio.run(use())
    assert len(engine.links) > 2
    assert all(link.is_gone for link in engine.links)


def test_places_of_sessions_follow_a_configuration_that_is_applied(
    engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    entry = {**demo_server, "placement": {}, "instances": "per-session"}

    async def use(manager: MCPClientManager) -> None:
        async with running(manager) as url, Client(f"{url}/mcp/demo", mode="legacy") as client:
            await client.call_tool("counter", {})
            earlier = list(engine.links)
            await asyncio.to_thread(manager.apply, {"demo": {**entry, "placement": {"maxPending": 2}}})
            assert (await client.call_tool("counter", {})).structured_content == {"value": 1}
            assert await asyncio.to_thread(wait_until, lambda: all(link.is_gone for link in earlier))

    with MCPClientManager({"demo": entry}) as manager:
        asyncio.run(use(manager))
