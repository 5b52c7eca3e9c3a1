"""`Gateway`: starting, stopping, and what is at which path."""

import asyncio

import pytest

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp import MCPClientManager
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.testing import FakeServer
from tests.gateway.lines import asking
from tests.waiting import PATIENCE


def one() -> str:
    """One."""
    return "1"


def test_a_manager_of_the_application_stays_connected() -> None:
    async def use(manager: MCPClientManager) -> None:
        async with asking(Gateway(manager)) as lines:
            assert (await lines.ask("tools/call", {"name": "a_one"}))["content"][0]["text"] == "1"

    with MCPClientManager({"a": FakeServer("a", tools=[one])}) as manager:
        asyncio.run(use(manager))
        assert manager.list_servers() == ["a"]


async def test_a_profile_is_a_path_and_hides_the_rest() -> None:
    profiles = {"few": Profile("few", servers=("a",)), EVERYTHING.name: EVERYTHING}
    servers = {"a": FakeServer("a", tools=[one]), "b": FakeServer("b", tools=[one])}
    ada = Principal("ada", profiles["few"])
    clients = ClientsFile(anonymous=EVERYTHING, profiles=profiles)
    async with Gateway(servers, clients=clients) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready)
        few = gateway._view_at("/mcp/@few", None)
        assert few is not None
        assert list(few.tools().routes) == ["a_one"]
        everything = gateway._view_at("/mcp", None)
        assert everything is not None
        assert list(everything.tools().routes) == ["a_one", "b_one"]
        assert gateway._view_at("/mcp/b", None) is not None
        assert gateway._view_at("/mcp/b", ada) is None
        assert gateway._view_at("/mcp/@none", None) is None
        assert gateway._view_at("/mcp/none", None) is None
        assert gateway._view_at("/mcp", None) is everything


@pytest.mark.parametrize("name", ["", "a.b", 65 * "a"])
def test_a_name_that_cannot_stand_in_an_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Gateway({}, name=name)


def hello(context: MCPContext) -> str:
    """Ask a person who it is."""
    return str(context.elicit("Who?", {"type": "object", "properties": {}})["action"])


@pytest.mark.parametrize("keys", [(b"k" * 32, b"k" * 32), (None, None)])
async def test_a_round_goes_on_at_another_gateway_with_the_same_key(keys: tuple[bytes | None, bytes | None]) -> None:
    meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}}
    params = {"name": "a_hello", "arguments": {}, **meta}
    for key in keys:
        server = FakeServer("a", tools=[hello], protocol="2026-07-28")
        async with asking(Gateway({"a": server}, state_key=key)) as lines:
            result = await lines.ask("tools/call", params)
            params |= {
                "inputResponses": {name: {"action": "decline"} for name in result.get("inputRequests", {})},
                "requestState": result.get("requestState"),
            }
    if keys[0] is None:
        assert result["code"] == -32602
    else:
        assert result["content"][0]["text"] == "decline"


def test_patterns_that_match_nothing_are_logged_when_the_tools_are_known(caplog: pytest.LogCaptureFixture) -> None:
    few = Profile("few", tools=ToolFilter(["a_one", "a_two"], short_names=True))

    async def use() -> None:
        clients = ClientsFile(anonymous=EVERYTHING, profiles={"few": few})
        async with Gateway({"a": FakeServer("a", tools=[one])}, clients=clients, keep_alive_interval=0.01) as gateway:
            assert gateway._patterns is not None
            async with asyncio.timeout(PATIENCE):
                while not gateway._patterns.is_done:
                    await asyncio.sleep(0.01)

    asyncio.run(use())
    events = [record.event_fields for record in caplog.records]  # type: ignore[attr-defined]  # see gaia.runtime.log
    found = [event for event in events if event["event"] == "gateway_pattern_matches_nothing"]
    assert [(event["where"], event["pattern"]) for event in found] == [("profiles.few.enabledTools", "a_two")]
