"""Resources, prompts, instructions and changes exactly, for clients and servers of both eras.

`test_combinations.py` has progress, cancelling, subscriptions and log messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from gaia.agents.base.mcp_context import MCPContext
from gaia.testing import FakeServer
from tests.gateway.running import running
from tests.waiting import PATIENCE

MODES = ("legacy", "auto")
REVISIONS = ("2025-11-25", "2026-07-28")

pytestmark = [
    pytest.mark.parametrize("mode", MODES),
    pytest.mark.parametrize("revision", REVISIONS),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


def greeting(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"


def count(context: MCPContext) -> str:
    """Count to two."""
    context.report_progress(1, 2)
    context.report_progress(2, 2, "done")
    return "2"


class Told:
    """What a client is told, and waiting for it."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self._arrived = asyncio.Event()

    async def handle(self, message: Any) -> None:
        if not isinstance(message, Exception):
            self.methods.append(message.method)
            self._arrived.set()

    async def wait_for(self, method: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while method not in self.methods:
                self._arrived.clear()
                await self._arrived.wait()


@contextlib.asynccontextmanager
async def connected(
    server: FakeServer, mode: str, told: Told | None = None, path: str = "/mcp"
) -> AsyncIterator[Client]:
    other = FakeServer("other", tools=[count])
    async with (
        running({"files": server, "other": other}) as url,
        Client(f"{url}{path}", mode=mode, message_handler=None if told is None else told.handle) as client,  # type: ignore[arg-type]
    ):
        yield client


async def test_resources_are_listed_and_read_under_their_uris(mode: str, revision: str) -> None:
    server = FakeServer("files", resources={"file:///a": "text of a", "file:///b": b"\0"}, protocol=revision)

    async with connected(server, mode) as client:
        listed = (await client.list_resources()).resources
        assert [resource.uri for resource in listed] == ["file:///a", "file:///b"]
        assert (await client.list_resource_templates()).resource_templates == []
        (content,) = (await client.read_resource("file:///a")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "text of a"
        with pytest.raises(MCPError) as missing:
            await client.read_resource("file:///c")
        assert missing.value.error.code == (-32002 if mode == "legacy" else -32602)


async def test_prompts_have_the_name_of_their_server_before_theirs(mode: str, revision: str) -> None:
    server = FakeServer("files", prompts=[greeting], protocol=revision)

    async with connected(server, mode) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "files_greeting"
        got = await client.get_prompt("files_greeting", {"name": "Ada"})
        assert got.messages[0].content.text == "Hello Ada"
        with pytest.raises(MCPError, match="Unknown prompt: greeting"):
            await client.get_prompt("greeting", {"name": "Ada"})
    async with connected(server, mode, path="/mcp/files") as client:
        assert (await client.get_prompt("greeting", {"name": "Ada"})).messages


async def test_capabilities_are_what_any_server_has(mode: str, revision: str) -> None:
    server = FakeServer("files", prompts=[greeting], protocol=revision)

    async with connected(server, mode) as client:
        assert client.server_capabilities.prompts is not None
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed


async def test_instructions_stand_under_the_names_of_their_servers(mode: str, revision: str) -> None:
    server = FakeServer("files", instructions="Read before you write.", protocol=revision)

    async with connected(server, mode) as client:
        assert client.instructions == "## files\n\nRead before you write."
    async with connected(server, mode, path="/mcp/files") as client:
        assert client.instructions == "Read before you write."


async def test_a_client_is_told_of_changed_lists(mode: str, revision: str) -> None:
    server = FakeServer("files", tools=[count], prompts=[greeting], resources={"a:b": ""}, protocol=revision)

    told = Told()
    async with connected(server, mode, told) as client, contextlib.AsyncExitStack() as stack:
        if mode == "auto":
            await stack.enter_async_context(client.listen(tools_list_changed=True, prompts_list_changed=True))
        await client.list_prompts()
        server.tools.add(greeting)
        names: list[str] = []
        while "files_greeting" not in names:
            # Of servers that have just joined it is told too.
            await told.wait_for("notifications/tools/list_changed")
            told.methods.clear()
            names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["files_count", "files_greeting", "other_count"]
        server.prompts.remove("greeting")
        await told.wait_for("notifications/prompts/list_changed")
        assert (await client.list_prompts()).prompts == []
