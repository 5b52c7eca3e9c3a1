"""Both eras of clients, both eras of servers, servers on stdio and over HTTP: what a client can use through a gateway.

The client is the official SDK's. One gateway has the same agent behind it four times. Over stdio, the client starts a
gateway of its own and uses everything of each server.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.gateway.gateway_process import gateway_process
from tests.serving.served import command, environment, http_server
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

AGENT = "tests.gateway.combination_agent:CombinationAgent"

MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}
"""What each way of the client to negotiate comes to."""

SERVERS = {
    "old-stdio": ("2025-11-25", "stdio"),
    "old-http": ("2025-11-25", "http"),
    "new-stdio": ("2026-07-28", "stdio"),
    "new-http": ("2026-07-28", "http"),
}
"""The revision that the gateway speaks with each server, and how it reaches it."""


@pytest.fixture(scope="module")
def entries(starts_programs: None) -> Iterator[dict[str, Any]]:
    """The servers as they are configured."""
    with contextlib.ExitStack() as stack:
        entries: dict[str, Any] = {}
        line = command("mcp", "serve", AGENT)
        for name, (revision, how) in SERVERS.items():
            if how == "http":
                entry: dict[str, Any] = {"url": stack.enter_context(http_server(AGENT, env={"NAME": name})).url}
            else:
                path = environment()["PYTHONPATH"]
                entry = {"command": line[0], "args": line[1:], "env": {"PYTHONPATH": path, "NAME": name}}
            entries[name] = {**entry, "protocol": revision}
        yield entries


@pytest.fixture(scope="module")
def config(entries: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gateway") / "servers.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    return file


@pytest.fixture(scope="module")
def url(config: Path) -> Iterator[str]:
    with gateway_process("--config", str(config)) as gateway:
        # The first list waits for all servers, which live as long as the gateway.
        assert gateway.open_session().status == 200
        yield f"http://127.0.0.1:{gateway.port}/mcp"


class Told:
    """What a client is told, and what it answers."""

    def __init__(self) -> None:
        self.notified: list[str] = []
        self.logged: list[tuple[str, Any]] = []
        self._arrived = asyncio.Event()

    async def notification(self, message: Any) -> None:
        self.notified.append(getattr(message, "method", ""))
        self._arrived.set()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append((str(params.level), params.data))

    async def wait_for(self, method: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while method not in self.notified:
                self._arrived.clear()
                await self._arrived.wait()

    async def person(self, _context: Any, params: Any) -> types.ElicitResult:
        names = {"First?": "Ann", "Second?": "Ben"}
        return types.ElicitResult(action="accept", content={"name": names.get(params.message, "Cleo")})

    async def model(self, _context: Any, _params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="small")

    async def roots(self, _context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///here")])  # type: ignore[arg-type]


class Use:
    """A client that uses one server of the gateway."""

    def __init__(self, client: Client, told: Told, mode: str, server: str) -> None:
        self.client = client
        self.told = told
        self.server = server
        self.is_handshake = mode == "legacy"
        self.revision, self.how = SERVERS[server]

    def name(self, own: str) -> str:
        return f"{self.server}_{own}"

    async def call(self, tool: str, **arguments: Any) -> types.CallToolResult:
        async with asyncio.timeout(PATIENCE):
            return await self.client.call_tool(self.name(tool), arguments)

    async def said(self, tool: str, **arguments: Any) -> Any:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result
        return result.structured_content["said"]

    async def tools(self) -> set[str]:
        # Without the client's own cache.
        return {tool.name for tool in (await self.client.session.list_tools()).tools}


@contextlib.asynccontextmanager
async def using(
    target: str | StdioServerParameters, mode: str, *, answers: bool = True
) -> AsyncIterator[tuple[Client, Told]]:
    told = Told()
    callbacks: dict[str, Any] = {}
    if answers:
        callbacks = {
            "elicitation_callback": told.person,
            "sampling_callback": told.model,
            "list_roots_callback": told.roots,
        }
    async with Client(
        target,
        mode=mode,  # type: ignore[arg-type]
        message_handler=told.notification,
        logging_callback=told.log,
        log_level=None if mode == "legacy" else "warning",
        **callbacks,
    ) as client:
        assert client.protocol_version == MODES[mode]
        yield client, told


# What a client uses.


async def tools(use: Use) -> None:
    assert use.name("echo") in await use.tools()
    assert await use.said("echo", text="höre\n") == "höre\n"


async def failures(use: Use) -> None:
    failed = await use.call("fail")
    assert failed.is_error
    assert "it cannot be done" in str(failed.content)
    with pytest.raises(MCPError, match="Unknown tool"):
        await use.call("nothing")


async def structured_output(use: Use) -> None:
    (tool,) = [tool for tool in (await use.client.list_tools()).tools if tool.name == use.name("add")]
    assert tool.output_schema is not None
    assert (await use.call("add", a=1, b=2)).structured_content == {"sum": 3}


async def resources(use: Use) -> None:
    uri = f"{use.server}:///text"
    assert uri in [resource.uri for resource in (await use.client.list_resources()).resources]
    (content,) = (await use.client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text.startswith("changed")
    with pytest.raises(MCPError) as missing:
        await use.client.read_resource(f"{use.server}:///nothing")
    # The handshake era has a code of its own, which servers of the stateless era do not know.
    assert missing.value.error.code == (-32002 if use.is_handshake else -32602)


async def templates(use: Use) -> None:
    listed = (await use.client.list_resource_templates()).resource_templates
    assert f"{use.server}:///numbers/{{number}}" in [template.uri_template for template in listed]
    (content,) = (await use.client.read_resource(f"{use.server}:///numbers/7")).contents
    assert isinstance(content, types.TextResourceContents)
    assert content.text == "number 7"


async def subscriptions(use: Use) -> None:
    uri = f"{use.server}:///text"
    async with contextlib.AsyncExitStack() as stack:
        if use.is_handshake:
            await use.client.subscribe_resource(uri)
        else:
            listening = await stack.enter_async_context(use.client.listen(resource_subscriptions=[uri]))
            assert listening.honored.resource_subscriptions == [uri]
        async with asyncio.timeout(PATIENCE):
            # A server of the stateless era may not watch it yet when the client has subscribed.
            while "notifications/resources/updated" not in use.told.notified:
                await use.call("change_text")
                await asyncio.sleep(0.01)
        if use.is_handshake:
            await use.client.unsubscribe_resource(uri)


async def prompts(use: Use) -> None:
    assert use.name("greet") in [prompt.name for prompt in (await use.client.list_prompts()).prompts]
    (message,) = (await use.client.get_prompt(use.name("greet"), {"who": "Ada"})).messages
    assert isinstance(message.content, types.TextContent)
    assert "Ada" in message.content.text


async def completion(use: Use) -> None:
    prompt = types.PromptReference(name=use.name("greet"))
    assert (await use.client.complete(prompt, {"name": "who", "value": "al"})).completion.values == ["alan"]
    template = types.ResourceTemplateReference(uri=f"{use.server}:///numbers/{{number}}")
    assert (await use.client.complete(template, {"name": "number", "value": "1"})).completion.values == ["1", "10"]


async def logging(use: Use) -> None:
    if use.is_handshake:
        await use.client.set_logging_level("warning")
    use.told.logged.clear()
    async with asyncio.timeout(PATIENCE):
        # A server of the handshake era may be told of the level when the first call is over.
        while not use.told.logged:
            await use.call("log")
            await asyncio.sleep(0.01)
    assert set(use.told.logged) == {("warning", "loud")}


async def progress(use: Use) -> None:
    reported: list[tuple[float, float | None, str | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        reported.append((done, total, message))

    await use.client.call_tool(use.name("count"), {}, progress_callback=report)
    assert reported == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def cancellation(use: Use) -> None:
    async with hanging(use):
        pass


async def elicitation(use: Use) -> None:
    assert await use.said("ask_person") == "Cleo"


async def sampling(use: Use) -> None:
    assert await use.said("ask_model") == "Paris"


async def roots(use: Use) -> None:
    assert await use.said("ask_roots") == ["file:///here"]


async def rounds(use: Use) -> None:
    assert await use.said("ask_twice") == "Ann and Ben"


async def list_changes(use: Use) -> None:
    before = await use.tools()
    async with contextlib.AsyncExitStack() as stack:
        if not use.is_handshake:
            await stack.enter_async_context(use.client.listen(tools_list_changed=True))
        use.told.notified.clear()
        await use.call("change_tools")
        await use.told.wait_for("notifications/tools/list_changed")
        assert await use.tools() == before ^ {use.name("extra")}


async def instructions(use: Use) -> None:
    assert f"## {use.server}\n\nUse with care." in (use.client.instructions or "")


FEATURES: list[Callable[[Use], Awaitable[None]]] = [
    tools,
    failures,
    structured_output,
    resources,
    templates,
    subscriptions,
    prompts,
    completion,
    logging,
    progress,
    cancellation,
    elicitation,
    sampling,
    roots,
    rounds,
    list_changes,
    instructions,
]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_either_era_uses_everything(mode: str, server: str, url: str) -> None:
    async with using(url, mode) as (client, told):
        for feature in FEATURES:
            await feature(Use(client, told, mode, server))


async def test_a_client_on_stdio_uses_everything(entries: dict[str, Any], tmp_path: Path) -> None:
    # `test_our_client.py` has the handshake era. What servers differ in is seen above: one of each era is enough.
    servers = {name: entries[name] for name in ("old-stdio", "new-http")}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    line = command("mcp", "gateway", "--stdio", "--config", str(tmp_path / "servers.json"))
    target = StdioServerParameters(command=line[0], args=line[1:], env=environment())

    async with using(target, "auto") as (client, told):
        for server in servers:
            # A session does not wait for the instructions of servers that take seconds to start.
            for feature in FEATURES[: FEATURES.index(instructions)]:
                await feature(Use(client, told, "auto", server))


# What is refused.


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_cannot_be_asked_is_told_what_it_lacks(mode: str, server: str, url: str) -> None:
    async with using(url, mode, answers=False) as (client, told):
        for tool, asked in {"ask_person": "elicitation", "ask_model": "sampling", "ask_roots": "roots"}.items():
            with pytest.raises(MCPError, match=asked) as refused:
                await Use(client, told, mode, server).call(tool)
            if mode == "auto":
                assert refused.value.error.code == -32021


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", MODES)
async def test_only_a_handshake_server_on_stdio_cannot_ask_one_of_several_clients(
    mode: str, server: str, url: str
) -> None:
    """Its requests do not say to which call they belong."""
    async with using(url, mode) as (client, told), using(url, mode) as (other, _):
        one = Use(client, told, mode, server)
        async with hanging(Use(other, told, mode, server)):
            if SERVERS[server] == ("2025-11-25", "stdio"):
                with pytest.raises(MCPError, match='"instances": "per-session"'):
                    await one.call("ask_person")
            else:
                assert await one.said("ask_person") == "Cleo"


@pytest.mark.parametrize("server", SERVERS)
async def test_a_session_is_asked_while_it_has_several_calls_under_way(server: str, url: str) -> None:
    async with using(url, "legacy") as (client, told):
        one = Use(client, told, "legacy", server)
        async with hanging(one):
            assert await one.said("ask_person") == "Cleo"


@contextlib.asynccontextmanager
async def hanging(use: Use) -> AsyncIterator[None]:
    """With a call under way, which is cancelled in the end."""
    key = str(id(use))
    calling = asyncio.create_task(use.client.call_tool(use.name("hang"), {"key": key}))
    # The answer to another call says that the first was read.
    await use.call("echo", text="")
    try:
        yield
    finally:
        calling.cancel()
        assert await use.said("wait_for_cancelled", key=key)
