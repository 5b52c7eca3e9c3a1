"""Several agents at one endpoint."""

import sys
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from gaia.mcp import MCPClient
from gaia.mcp.mcp_bridge import MCPBridge, namespace_of
from tests.serving.agents import QuietAgent
from tests.serving.served import EXAMPLES, command, environment

NOTES = ["notes_write-note", "notes_delete-note", "notes_count-words"]


class UpperAgent(QuietAgent):
    def read_mcp_resource(self, uri: str) -> Any:
        if uri.startswith("upper://"):
            return uri.removeprefix("upper://").upper()
        raise ValueError(f"Unknown resource: {uri}")


class BrokenAgent(QuietAgent):
    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        raise RuntimeError("cannot list")


@pytest.fixture
def bridge() -> MCPBridge:
    agents = {"broken": BrokenAgent(silent_mode=True), "b": UpperAgent(silent_mode=True), "a": QuietAgent()}
    return MCPBridge(agents)


def test_tools_are_namespaced_and_routed_and_resources_read_from_the_agent_that_knows_them(bridge: MCPBridge) -> None:
    assert [tool["name"] for tool in bridge.get_mcp_tool_definitions()] == ["b_upper", "a_upper"]
    assert bridge.execute_mcp_tool("a_upper", {"text": "x"}) == {"text": "X"}
    with pytest.raises(ValueError, match="Unknown tool: upper"):
        bridge.execute_mcp_tool("upper", {"text": "x"})
    assert bridge.read_mcp_resource("upper://abc") == "ABC"
    with pytest.raises(ValueError, match="Unknown resource"):
        bridge.read_mcp_resource("other://abc")
    assert bridge.offers_mcp("resources")
    assert not bridge.offers_mcp("prompts")


def test_a_change_in_an_agent_is_one_of_the_bridge() -> None:
    agent = QuietAgent(silent_mode=True)
    heard: list[tuple[str, str | None]] = []
    remove = MCPBridge({"a": agent}).add_mcp_listener(lambda what, uri: heard.append((what, uri)))
    agent.notify_mcp_change("tools")
    remove()
    agent.notify_mcp_change("tools")
    assert heard == [("tools", None)]


@pytest.mark.parametrize("namespace", ["", "with space", "ü", "a.b"])
def test_a_namespace_must_be_good_for_a_tools_name(namespace: str) -> None:
    with pytest.raises(ValueError, match="cannot be a namespace"):
        MCPBridge({namespace: QuietAgent(silent_mode=True)})


def test_a_namespace_is_made_of_the_class() -> None:
    assert namespace_of(QuietAgent(silent_mode=True)) == "quiet"


@pytest.mark.process
@pytest.mark.slow
async def test_the_example_is_served_on_stdio() -> None:
    server = StdioServerParameters(command=sys.executable, args=[str(EXAMPLES / "bridge.py")], env=environment())
    async with Client(server) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [*NOTES, "shout_shout"]
        shouted = await client.call_tool("shout_shout", {"text": "hello"})
        assert shouted.structured_content == {"text": "HELLO"}
        await client.call_tool("notes_write-note", {"title": "a", "text": "b"})
        assert (await client.read_resource("note:///a")).contents[0].text == "b"  # type: ignore[union-attr]
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "notes_summarize-note"
        assert (await client.get_prompt(prompt.name, {"title": "a"})).messages
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("shout", {"text": "hello"})


@pytest.mark.process
@pytest.mark.slow
def test_the_command_serves_agents_under_given_and_made_namespaces() -> None:
    line = command("mcp", "bridge", "notes_agent:NotesAgent", "loud=bridge:ShoutAgent")
    config = {"command": line[0], "args": line[1:], "env": environment(), "protocol": "legacy"}
    with MCPClient.from_config("all", config) as client:
        assert client.connect()
        assert [tool.name for tool in client.list_tools()] == [*NOTES, "loud_shout"]
        assert client.call_tool("loud_shout", {"text": "a"})["structuredContent"] == {"text": "A"}
