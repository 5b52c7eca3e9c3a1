"""The official SDK's client, in both eras, uses servers through the gateway."""

import pytest
from mcp import Client, MCPError

from gaia.testing import FakeServer
from tests.gateway.running import running

REVISIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
"""What each way to negotiate comes to."""

pytestmark = pytest.mark.parametrize("mode", REVISIONS)


def echo(text: str) -> str:
    """Say it again."""
    return text


def greeting(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def servers() -> dict[str, FakeServer]:
    return {
        "words": FakeServer("words", tools=[echo], prompts=[greeting], instructions="Read before you write."),
        "numbers": FakeServer("numbers", tools=[add], protocol="2026-07-28"),
    }


async def test_tools_of_all_servers_are_listed_and_called_by_prefixed_names(mode: str) -> None:
    async with running(servers()) as url, Client(f"{url}/mcp", mode=mode) as client:
        assert client.protocol_version == REVISIONS[mode]
        assert [tool.name for tool in (await client.list_tools()).tools] == ["words_echo", "numbers_add"]
        assert (await client.call_tool("words_echo", {"text": "höre"})).content[0].text == "höre"
        assert (await client.call_tool("numbers_add", {"a": 1, "b": 2})).content[0].text == "3"
        assert client.server_capabilities.prompts is not None
        assert client.instructions == "## words\n\nRead before you write."
        assert (await client.get_prompt("words_greeting", {"name": "Ada"})).messages


async def test_one_server_is_at_a_path_of_its_own_under_its_own_names(mode: str) -> None:
    async with running(servers()) as url, Client(f"{url}/mcp/words", mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]
        assert (await client.call_tool("echo", {"text": "hi"})).content[0].text == "hi"
        assert client.instructions == "Read before you write."
        (message,) = (await client.get_prompt("greeting", {"name": "Ada"})).messages
        assert message.content.text == "Hello Ada"


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_only_the_handshake_era_has_ping(mode: str) -> None:
    async with running(servers()) as url, Client(f"{url}/mcp", mode=mode) as client:
        if mode == "legacy":
            await client.send_ping()
        else:
            with pytest.raises(MCPError) as refused:
                await client.send_ping()
            assert refused.value.error.code == -32601
