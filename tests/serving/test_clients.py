"""Clients that others wrote, and our own, use the agent of the documentation."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from gaia.mcp import MCPClient
from gaia.mcp.supervision.events import ServerState
from tests.serving.served import Served, command, environment, http_server
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

AGENT = "notes_agent:NotesAgent"
TOOLS = ["write-note", "delete-note", "count-words"]
REVISIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
"""What each way to negotiate comes to."""


@pytest.fixture(scope="module")
def served(starts_programs: None) -> Iterator[Served]:
    with http_server(AGENT) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(starts_programs: None) -> Iterator[Served]:
    with http_server(AGENT, env={"GAIA_SERVE_TOKEN": "open-sesame"}) as server:
        yield server


def on_stdio() -> StdioServerParameters:
    line = command("mcp", "serve", AGENT)
    return StdioServerParameters(command=line[0], args=line[1:], env=environment())


async def agree(_context: Any, params: Any) -> types.ElicitResult:
    assert "Delete the note" in params.message
    return types.ElicitResult(action="accept", content={"sure": True})


async def use_everything(client: Client) -> None:
    assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
    written = await client.call_tool("write-note", {"title": "shopping", "text": "milk and bread"})
    assert (written.is_error, written.structured_content) == (False, {"status": "kept", "title": "shopping"})

    progress: list[float] = []

    async def report(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    counted = await client.call_tool("count-words", {}, progress_callback=report)
    assert counted.structured_content["words"]["shopping"] == 3
    assert progress == sorted(progress)
    assert progress

    assert "note:///shopping" in [resource.uri for resource in (await client.list_resources()).resources]
    (content,) = (await client.read_resource("note:///shopping")).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text == "milk and bread"

    (prompt,) = (await client.list_prompts()).prompts
    (message,) = (await client.get_prompt(prompt.name, {"title": "shopping"})).messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text.endswith("milk and bread")

    reference = types.PromptReference(name=prompt.name)
    assert (await client.complete(reference, {"name": "title", "value": "sh"})).completion.values == ["shopping"]

    # The question reaches the user in both eras, and the answer reaches the tool.
    deleted = await client.call_tool("delete-note", {"title": "shopping"})
    assert deleted.structured_content == {"status": "deleted"}


@pytest.mark.parametrize(("mode", "revision"), REVISIONS.items())
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_official_client_uses_everything(transport: str, mode: str, revision: str, served: Served) -> None:
    async def session() -> None:
        changed = asyncio.Event()

        async def hear(message: Any) -> None:
            if getattr(message, "method", None) == "notifications/resources/list_changed":
                changed.set()

        target = on_stdio() if transport == "stdio" else served.url
        async with Client(target, mode=mode, elicitation_callback=agree, message_handler=hear) as client:
            assert client.protocol_version == revision
            await use_everything(client)
            # A change is told to the session, or to those that listen.
            if mode == "legacy":
                await asyncio.wait_for(changed.wait(), PATIENCE)
                return
            async with client.listen(resources_list_changed=True) as events:
                await client.call_tool("write-note", {"title": "a", "text": "b"})
                event = await asyncio.wait_for(anext(aiter(events)), PATIENCE)
                assert type(event).__name__ == "ResourcesListChanged"

    asyncio.run(session())


# The official client says that later revisions have another way.
@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_client_hears_of_the_resources_it_has_subscribed_to_and_of_no_others(served: Served) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(message: Any) -> None:
        if getattr(message, "method", None) == "notifications/resources/updated":
            heard.put_nowait(message.params.uri)

    async with Client(served.url, mode="legacy", message_handler=listen) as client:
        for title in "ab":
            await client.call_tool("write-note", {"title": title, "text": "1"})
        await client.subscribe_resource("note:///b")
        for title in "ab":
            await client.call_tool("write-note", {"title": title, "text": "2"})
        assert await asyncio.wait_for(heard.get(), PATIENCE) == "note:///b"
        await client.unsubscribe_resource("note:///b")
        await client.subscribe_resource("note:///a")
        for title in "ba":
            await client.call_tool("write-note", {"title": title, "text": "3"})
        assert await asyncio.wait_for(heard.get(), PATIENCE) == "note:///a"
        assert heard.empty()


@pytest.mark.parametrize(("transport", "protocol"), [("stdio", "auto"), ("http", "legacy"), ("http", "auto")])
def test_our_own_client_uses_everything(transport: str, protocol: str, served: Served) -> None:
    line = command("mcp", "serve", AGENT)
    started = {"command": line[0], "args": line[1:], "env": environment()}
    config = {"protocol": protocol, **(started if transport == "stdio" else {"url": served.url})}
    with MCPClient.from_config("notes", config) as client:
        assert client.connect()
        assert client.protocol_version == REVISIONS[protocol]
        assert [tool.name for tool in client.list_tools()] == TOOLS
        result = client.call_tool("write-note", {"title": "a", "text": "b c"})
        assert result["structuredContent"] == {"status": "kept", "title": "a"}
        progress: list[float] = []
        counted = client.call_tool("count-words", {}, on_progress=lambda done, _total, _message: progress.append(done))
        assert counted["structuredContent"]["words"]["a"] == 2
        assert client.read_resource("note:///a")["contents"][0]["text"] == "b c"
        assert client.get_prompt("summarize-note", {"title": "a"})["messages"][0]["role"] == "user"
        refused = client.call_tool("write-note", {"title": ""})
        assert refused["isError"]


class TestATokenOverHttp:
    """With a token, nobody else is let in."""

    @pytest.mark.parametrize("protocol", ["legacy", "auto"])
    def test_it_opens_the_door(self, protocol: str, guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NOTES_TOKEN", "open-sesame")
        headers = {"Authorization": "Bearer ${NOTES_TOKEN}"}
        config = {"url": guarded.url, "headers": headers, "protocol": protocol}
        with MCPClient.from_config("notes", config) as client:
            assert "words" in client.call_tool("count-words", {})["structuredContent"]

    @pytest.mark.parametrize(
        ("headers", "said"),
        [({}, "run: gaia mcp login notes"), ({"Authorization": "Bearer wrong-token"}, "401 Unauthorized")],
    )
    def test_nothing_else_does(self, headers: dict[str, str], said: str, guarded: Served) -> None:
        client = MCPClient.from_config("notes", {"url": guarded.url, "headers": headers})
        assert not client.connect()
        assert client.last_error is not None
        assert said in client.last_error
        assert "wrong-token" not in client.last_error
        client.disconnect()


@pytest.mark.process
def test_a_server_that_is_killed_and_started_again_is_used_again() -> None:
    with contextlib.ExitStack() as stack:
        clients = {}
        with http_server(AGENT) as first:
            for protocol in REVISIONS:
                restart = {"initialDelay": 0.1, "maxDelay": 0.2, "maxRestarts": 1000}
                client = MCPClient.from_config("notes", {"url": first.url, "protocol": protocol, "restart": restart})
                stack.callback(client.disconnect)
                assert client.connect(), client.last_error
                clients[protocol] = client
            first.process.kill()
            first.process.wait()
        futures = {name: client.submit_tool("count-words", {}, timeout=30) for name, client in clients.items()}
        second = stack.enter_context(http_server(AGENT, "--port", str(first.port)))
        assert second.port == first.port
        for protocol, client in clients.items():
            assert "words" in futures[protocol].result(PATIENCE)["structuredContent"]
            assert (client.status.restarts, client.state) == (1, ServerState.READY)
            # Before the server ends.
            client.disconnect()
