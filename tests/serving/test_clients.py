"""Clients that others wrote, and our own, use the agent of the documentation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from gaia.mcp import MCPClient
from gaia.mcp.client.supervision.events import Event, ServerState
from tests.servers import node
from tests.servers.real_servers import Unavailable
from tests.serving.served import Served, command, environment, http_server

AGENT = "notes_agent:NotesAgent"
TOOLS = ["write-note", "delete-note", "count-words"]
INSPECTOR = ("@modelcontextprotocol/inspector", "clients/launcher/build/index.js")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with http_server(AGENT) as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    with http_server(AGENT, env={"GAIA_SERVE_TOKEN": "open-sesame"}) as server:
        yield server


def on_stdio() -> StdioServerParameters:
    line = command("mcp", "serve", AGENT)
    return StdioServerParameters(command=line[0], args=line[1:], env=environment())


def use(client: Client, steps: Callable[[Client], Awaitable[None]]) -> None:
    async def session() -> None:
        async with client:
            await steps(client)

    asyncio.run(session())


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


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_official_client_uses_everything(transport: str, mode: str, served: Served) -> None:
    target = on_stdio() if transport == "stdio" else served.url
    use(Client(target, mode=mode, elicitation_callback=agree), use_everything)


def test_the_official_client_agrees_on_the_era_it_is_told_to(served: Served) -> None:
    async def modern(client: Client) -> None:
        assert client.protocol_version == "2026-07-28"

    async def legacy(client: Client) -> None:
        assert client.protocol_version == "2025-11-25"

    use(Client(served.url, mode="auto"), modern)
    use(Client(served.url, mode="legacy"), legacy)
    use(Client(on_stdio(), mode="auto"), modern)
    use(Client(on_stdio(), mode="legacy"), legacy)


@pytest.mark.parametrize(("protocol", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_our_own_client_uses_everything(transport: str, protocol: str, revision: str, served: Served) -> None:
    line = command("mcp", "serve", AGENT)
    started = {"command": line[0], "args": line[1:], "env": environment()}
    config = {"protocol": protocol, **(started if transport == "stdio" else {"url": served.url})}
    with MCPClient.from_config("notes", config) as client:
        assert client.connect()
        assert client.protocol_version == revision
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
        [
            ({}, "run: gaia mcp login notes"),
            ({"Authorization": "Bearer wrong-token"}, "401 Unauthorized"),
        ],
    )
    def test_nothing_else_does(self, headers: dict[str, str], said: str, guarded: Served) -> None:
        client = MCPClient.from_config("notes", {"url": guarded.url, "headers": headers})
        assert not client.connect()
        assert client.last_error is not None
        assert said in client.last_error
        assert "wrong-token" not in client.last_error
        client.disconnect()


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
def test_a_server_that_is_killed_and_started_again_is_used_again(protocol: str) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        with http_server(AGENT) as first:
            restart = {"initialDelay": 0.1, "maxDelay": 0.2, "maxRestarts": 1000}
            client = MCPClient.from_config("notes", {"url": first.url, "protocol": protocol, "restart": restart})
            stack.callback(client.disconnect)
            client.subscribe(events.put)
            assert client.connect(), client.last_error
            first.process.kill()
            first.process.wait()
        future = client.submit_tool("count-words", {}, timeout=30)
        second = stack.enter_context(http_server(AGENT, "--port", str(first.port)))
        assert second.port == first.port
        assert "words" in future.result(30)["structuredContent"]
        assert (client.status.restarts, client.state) == (1, ServerState.READY)
        stack.callback(client.disconnect)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_and_calls(transport: str, served: Served) -> None:
    try:
        inspector = [*node.script(*INSPECTOR), "--cli"]
    except Unavailable as reason:
        pytest.skip(str(reason))

    def inspect(*options: str) -> dict[str, Any]:
        if transport == "stdio":
            path = f"PYTHONPATH={environment()['PYTHONPATH']}"
            line = [*inspector, "-e", path, *options, "--", *command("mcp", "serve", AGENT)]
        else:
            line = [*inspector, "--transport", "http", "--server-url", served.url, *options]
        run = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr + run.stdout
        result: dict[str, Any] = json.loads(run.stdout)
        return result

    assert [tool["name"] for tool in inspect("--method", "tools/list")["tools"]] == TOOLS
    called = inspect("--method", "tools/call", "--tool-name", "count-words")
    assert called["structuredContent"]["words"]["welcome"] == 7
