"""`AsyncMCPClient`: what `MCPClient` has, to be awaited."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp import MCPClient, ServerState, ServerUnavailable
from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.errors import NotConnected
from gaia.mcp.supervision.events import Event, StateChanged
from tests.fake_transport import FakeTransport
from tests.repository.test_documented_api import INTERNAL
from tests.unit.mcp.aio.conftest import Faked, run, until
from tests.waiting import wait_until

Fake = Callable[..., Faked]

NOT_NEEDED = {"submit_tool"}
"""A task takes the place of a future."""


def public(owner: type) -> dict[str, Any]:
    return {name: member for name, member in vars(owner).items() if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    function = getattr(function, "__func__", function)
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


def test_it_has_all_that_the_synchronous_client_has_with_the_same_parameters() -> None:
    internal = {name.rpartition(".")[2] for name in INTERNAL if name.startswith("gaia.mcp.MCPClient.")}
    theirs, ours = public(MCPClient), public(AsyncMCPClient)
    assert theirs.keys() - NOT_NEEDED - internal == ours.keys() - {"over", "events", "name", "debug"}
    for name, member in theirs.items():
        if name in ours and not isinstance(member, property):
            assert parameters(ours[name]) == parameters(member), name
    assert parameters(AsyncMCPClient.__init__) == parameters(MCPClient.__init__)


def test_what_is_known_of_the_server_is_what_the_synchronous_client_says(faked: Faked) -> None:
    # The status has the time since the server is ready.
    for name in public(AsyncMCPClient).keys() - {"status"}:
        if isinstance(getattr(AsyncMCPClient, name, None), property):
            assert getattr(faked.client, name) == getattr(faked.sync, name), name
    assert faked.client.is_connected()
    assert faked.client.status.generation == 1
    assert repr(faked.client) == repr(faked.sync).replace("<MCP", "<AsyncMCP")


def test_the_same_client_may_be_made_asynchronous_twice(faked: Faked) -> None:
    assert AsyncMCPClient.over(faked.client) is faked.client
    assert AsyncMCPClient.over(faked.sync).sync is faked.sync


def test_the_other_constructors_make_clients_that_are_not_connected() -> None:
    entry = {"command": "server", "timeout": 7}
    for client in (AsyncMCPClient.from_config("one", entry), AsyncMCPClient.from_command("one", "server --flag")):
        assert (client.name, client.state) == ("one", ServerState.CREATED)
    with pytest.raises(ValueError, match="command"):
        AsyncMCPClient.from_config("one", {})


async def test_a_context_connects_and_disconnects() -> None:
    async with AsyncMCPClient("fake", FakeTransport(), protocol="handshake") as client:
        assert client.is_connected()
        assert [tool.name for tool in await client.list_tools()] == ["echo", "look"]
        assert await client.connect()
    assert client.state is ServerState.CLOSED
    assert await client.connect()
    assert await client.restart()
    await client.disconnect()


async def test_a_context_that_cannot_connect_says_why() -> None:
    transport = FakeTransport()
    transport.start_errors.extend([ServerUnavailable("no such program")] * 3)

    with pytest.raises(ServerUnavailable, match=r"'fake': .*no such program"):
        async with AsyncMCPClient("fake", transport, protocol="handshake"):
            raise AssertionError("it is not entered")


async def test_connecting_that_is_cancelled_leaves_nothing() -> None:
    transport = FakeTransport()
    transport.answers["initialize"] = lambda _: None

    client = AsyncMCPClient("fake", transport, protocol="handshake")
    task = asyncio.create_task(client.__aenter__())
    channel = (await until(lambda: transport._channels, 1))[0]
    await until(lambda: channel.requests("initialize"), 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.state is ServerState.CLOSED
    assert channel.closed_with_grace is not None


async def test_connecting_again_that_is_cancelled_leaves_a_connected_server_alone(faked: Faked) -> None:

    task = asyncio.create_task(faked.client.connect())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert faked.sync.is_connected()


async def test_disconnecting_is_done_to_its_end(faked: Faked) -> None:

    faked.channel.hold_closing()
    task = asyncio.create_task(faked.client.disconnect())
    await asyncio.to_thread(faked.channel.wait_until_closing)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    faked.channel.let_close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert faked.sync.state is ServerState.CLOSED


async def test_events_end_when_the_client_is_disconnected_and_not_when_it_is_restarted(faked: Faked) -> None:

    stream = faked.client.events()

    async def states() -> list[ServerState]:
        return [event.new async for event in stream if isinstance(event, StateChanged)]

    task = asyncio.create_task(states())
    faked.channel.end(exit_code=1)
    await asyncio.to_thread(wait_until, lambda: faked.transport.starts == 2 and faked.sync.is_connected())
    assert not task.done()
    await faked.client.disconnect()
    assert await task == [ServerState.RESTARTING, ServerState.READY, ServerState.CLOSED]


def test_listeners_are_the_synchronous_clients(faked: Faked) -> None:
    told: list[Event] = []
    unsubscribe = faked.client.subscribe(told.append)
    run(faked.client.disconnect())
    assert wait_until(lambda: bool(told))
    unsubscribe()


def test_a_wrapper_of_a_tool_is_a_coroutine_function(faked: Faked) -> None:
    faked.channel._answers["tools/call"] = lambda request: {"content": [], "sent": request["params"]["arguments"]}
    tool = faked.sync.list_tools()[0]
    wrapper = faked.client.create_tool_wrapper(tool)
    assert inspect.iscoroutinefunction(wrapper)
    assert (wrapper.__name__, wrapper.__doc__) == (tool.name, tool.description)
    assert run(wrapper(text="hi"))["sent"] == {"text": "hi"}


async def test_pinned_prompts_are_compared_on_a_thread(fake: Fake) -> None:
    faked = fake(pin_tools="block")
    faked.channel._answers["prompts/list"] = lambda _: {"prompts": [{"name": "greet"}]}
    faked.channel._answers["prompts/get"] = lambda _: {"messages": []}

    assert await faked.client.list_prompts() == [{"name": "greet"}]
    assert await faked.client.get_prompt("greet") == {"messages": []}


async def test_the_other_features_are_awaited(fake: Fake) -> None:
    faked = fake()
    answers = faked.channel._answers
    answers["resources/list"] = lambda _: {"resources": []}
    answers["resources/templates/list"] = lambda _: {"resourceTemplates": []}
    answers["completion/complete"] = lambda request: {"completion": {"values": list(request["params"]["context"])}}

    client = faked.client
    assert await client.list_resources() == await client.list_resource_templates() == []
    done = await client.complete({"type": "ref/prompt", "name": "a"}, {"name": "b", "value": "c"}, context={"d": "e"})
    assert done == {"completion": {"values": ["arguments"]}}
    for refused in (client.subscribe_resource("x://a"), client.set_logging_level("info")):
        with pytest.raises(Exception, match="the server does not"):
            await refused
    await client.unsubscribe_resource("x://a")
    with pytest.raises(RuntimeError, match="roots"):
        client.set_roots([])


def test_calls_stay_with_one_process(demo_server: dict[str, Any]) -> None:
    asyncio.run(_use(demo_server))


async def _use(demo_server: dict[str, Any]) -> None:
    async with AsyncMCPClient.from_config("it", demo_server) as client:
        async with client.pinned() as handle:
            values = [(await handle.call_tool("counter"))["structuredContent"]["value"] for _ in range(2)]
            assert values == [1, 2]
            assert not handle.is_lost
        with pytest.raises(NotConnected, match="pinned"):
            await handle.read_resource("it://x")
        with pytest.raises(NotConnected, match="pinned"):
            await handle.get_prompt("x")
