"""`AsyncMCPClientManager`: what `MCPClientManager` has, to be awaited."""

import asyncio
import threading
from typing import Any

import pytest

from gaia.mcp import MCPClient, MCPClientManager, ServerUnavailable
from gaia.mcp.aio import AsyncMCPClientManager, threads
from gaia.mcp.supervision.events import Event, StateChanged, ToolsChanged
from tests.fake_transport import FakeTransport
from tests.unit.mcp.aio.conftest import run, until
from tests.unit.mcp.aio.test_client import parameters, public
from tests.waiting import PATIENCE

NOT_NEEDED = {"submit_tool"}
"""A task takes the place of a future."""

ONE = {"one": {"command": "server", "protocol": "handshake"}}
TWO = {**ONE, "two": ONE["one"]}


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> list[FakeTransport]:
    """Those of all servers of the test, which answer every call at once."""
    made: list[FakeTransport] = []

    def transport(*_: Any) -> FakeTransport:
        made.append(FakeTransport())
        made[-1].answers["tools/call"] = lambda request: {"content": [], "tool": request["params"]["name"]}
        return made[-1]

    monkeypatch.setattr("gaia.mcp.client.mcp_client.transport_for", transport)
    return made


@pytest.fixture
def silent(transports: list[FakeTransport], monkeypatch: pytest.MonkeyPatch) -> list[FakeTransport]:
    """The same, of servers that never answer the first message."""
    monkeypatch.setattr("tests.fake_transport.handshake_answers", dict)
    return transports


def test_it_has_all_that_the_synchronous_manager_has_with_the_same_parameters() -> None:
    theirs, ours = public(MCPClientManager), public(AsyncMCPClientManager)
    assert theirs.keys() - NOT_NEEDED == ours.keys() - {"over", "events", "debug"}
    for name, member in theirs.items():
        if name in ours and not isinstance(member, property):
            assert parameters(ours[name]) == parameters(member), name
    assert parameters(AsyncMCPClientManager.__init__) == parameters(MCPClientManager.__init__)


async def test_a_call_waits_no_longer_than_its_timeout_for_a_start_that_has_not_begun(
    transports: list[FakeTransport], monkeypatch: pytest.MonkeyPatch
) -> None:

    # Its thread ends the process of a former server of this name first.
    monkeypatch.setattr("gaia.mcp.client.manager_engine._TO_BEGIN_SECONDS", 2 * PATIENCE)
    manager = AsyncMCPClientManager(ONE)
    manager.sync._engine.registry.reserve("one", MCPClient.from_config("one", ONE["one"]))
    result = await manager.call_tool("mcp_one_echo", timeout=0.01)
    assert (result["error_type"], result["delivery"]) == ("server_unavailable", "not_sent")


async def test_a_context_connects_lists_calls_and_disconnects(transports: list[FakeTransport]) -> None:
    async with AsyncMCPClientManager(TWO) as manager:
        assert manager.list_servers() == ["one", "two"]
        assert len(await manager.list_tools()) == 4
        assert (await manager.call_tool("mcp_two_echo"))["tool"] == "echo"
        client = manager.get_client("one")
        assert client is not None
        assert (await client.call_tool("look"))["tool"] == "look"
        assert manager.get_client("three") is None
        assert repr(manager) == repr(manager.sync).replace("<MCP", "<AsyncMCP")
        assert (manager.config, manager.debug) == (manager.sync.config, False)
    assert manager.list_servers() == []


def test_one_over_a_manager_that_exists_shares_it(transports: list[FakeTransport]) -> None:
    with MCPClientManager(ONE) as manager:
        of_manager = AsyncMCPClientManager.over(manager)
        assert AsyncMCPClientManager.over(of_manager) is of_manager
        assert run(of_manager.call_tool("mcp_one_echo"))["tool"] == "echo"
        assert manager.call_tool("mcp_one_echo")["tool"] == "echo"


async def test_calls_that_cannot_be_made_are_results_as_in_the_synchronous_manager(
    transports: list[FakeTransport],
) -> None:
    async with AsyncMCPClientManager(ONE) as manager:
        for name in ("nope", "mcp_one_nope", "mcp_two_echo"):
            assert await manager.call_tool(name) == manager.sync.call_tool(name)
        await manager.stop_server("one")
        result = await manager.call_tool("mcp_one_echo")
        assert (result["error_type"], result["delivery"]) == ("server_unavailable", "not_sent")
        assert manager.absence_of("mcp_one_echo") is not None
        route = manager.sync._engine.registry.routes.get("mcp_one_echo")
        assert await manager.restart("one")
        assert await manager.restart_server("one")
        await manager.remove_server("one")
        assert route is None or (await manager.call_tool("mcp_one_echo"))["delivery"] == "not_sent"
        with pytest.raises(ValueError, match="nothing to stop"):
            await manager.stop_server("one")


async def test_a_server_that_is_removed_after_its_route_was_found_is_unavailable(
    transports: list[FakeTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncMCPClientManager(ONE) as manager:
        routes = dict(manager.sync._engine.registry.routes)
        await manager.remove_server("one")
        monkeypatch.setattr(manager.sync._engine.registry, "routes", routes)
        assert (await manager.call_tool("mcp_one_echo"))["error_type"] == "server_unavailable"


async def test_servers_are_added_and_loaded(transports: list[FakeTransport]) -> None:
    manager = AsyncMCPClientManager(ONE)
    try:
        assert not await manager.wait_ready(0)
        await manager.load_from_config()
        assert (await manager.add_server("two", ONE["one"])).is_connected()
        with pytest.raises(ValueError, match="already exists"):
            await manager.add_server("two", ONE["one"])
        assert manager.list_servers() == ["one", "two"]
        assert [status.name for status in manager.status()] == ["one", "two"]
        assert await manager.wait_ready()
        await manager.require()
        with pytest.raises(ServerUnavailable, match="three"):
            await manager.require("three")
        with pytest.raises(ValueError, match="timeout"):
            await manager.wait_ready(-1)
        with pytest.raises(RuntimeError, match="roots"):
            manager.set_roots([])
    finally:
        await manager.disconnect_all()


class TestCancellation:
    async def test_entering_that_is_cancelled_leaves_nothing(self, silent: list[FakeTransport]) -> None:
        manager = AsyncMCPClientManager(TWO)
        task = asyncio.create_task(manager.__aenter__())
        await until(lambda: [one for one in silent if one.starts], 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert manager.list_servers() == []
        assert all(one.channel(1).closed_with_grace is not None for one in silent)

    async def test_entering_that_is_cancelled_at_once_leaves_nothing(self, transports: list[FakeTransport]) -> None:

        manager = AsyncMCPClientManager(TWO)
        task = asyncio.create_task(manager.__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert manager.list_servers() == []
        assert all(one.channel(one.starts).closed_with_grace is not None for one in transports if one.starts)

    async def test_entering_that_is_cancelled_waits_until_the_servers_have_ended(
        self, silent: list[FakeTransport], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        may_end = threading.Event()
        disconnect_all = MCPClientManager.disconnect_all
        calls: list[MCPClientManager] = []

        def slow(manager: MCPClientManager) -> None:
            calls.append(manager)
            is_first = len(calls) == 1
            disconnect_all(manager)
            assert not is_first or may_end.wait(PATIENCE)

        monkeypatch.setattr(MCPClientManager, "disconnect_all", slow)

        task = asyncio.create_task(AsyncMCPClientManager(ONE).__aenter__())
        await until(lambda: [one for one in silent if one.starts], 1)
        task.cancel()
        assert await asyncio.wait([task], timeout=0.05) == (set(), {task})
        may_end.set()
        await asyncio.wait([task])

    async def test_a_server_that_was_added_by_a_cancelled_task_is_removed(
        self, transports: list[FakeTransport]
    ) -> None:

        async with AsyncMCPClientManager({}) as manager:
            add, may_add = manager.sync.add_server, threading.Event()

            def slow(*arguments: Any, **options: Any) -> Any:
                added = add(*arguments, **options)
                assert may_add.wait(10)
                return added

            manager.sync.add_server = slow  # type: ignore[method-assign]
            task = asyncio.create_task(manager.add_server("one", ONE["one"]))
            await until(manager.list_servers, 1)
            task.cancel()
            await asyncio.wait([task])
            may_add.set()
            while manager.list_servers():
                await asyncio.sleep(0.001)

    async def test_so_is_one_of_a_task_that_is_cancelled_just_before_it_goes_on(
        self, transports: list[FakeTransport]
    ) -> None:
        async with AsyncMCPClientManager({}) as manager:
            task = asyncio.create_task(manager.add_server("one", ONE["one"]))
            await asyncio.sleep(0)
            # The loop does not run meanwhile, and the thread comes to its end.
            assert threads._threads.drain(PATIENCE)
            assert manager.list_servers() == ["one"]
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            while manager.list_servers():
                await asyncio.sleep(0.001)


class TestReadiness:
    async def test_tasks_wait_without_threads_until_the_servers_are_ready(self, silent: list[FakeTransport]) -> None:
        async with AsyncMCPClientManager({}) as manager:
            loading = asyncio.create_task(manager.add_server("one", ONE["one"]))
            channel = (await until(lambda: [one.channel(1) for one in silent if one.starts], 1))[0]
            await until(lambda: channel.requests("initialize"), 1)
            before = set(threading.enumerate())
            waits = [asyncio.create_task(manager.wait_ready()) for _ in range(100)]
            waits.extend(asyncio.create_task(manager.require("one")) for _ in range(100))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            # One or the other of the engine may start or end at any time.
            assert len(set(threading.enumerate()) - before) < 10
            assert not await manager.wait_ready(0.001)
            (request,) = channel.requests("initialize")
            answer = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}
            channel.answer(request, answer)
            assert await asyncio.gather(*waits) == [True] * 100 + [None] * 100
            await loading
        assert manager.sync._engine.readiness._waiting == set()


async def test_events_of_all_servers_end_when_the_manager_closes(transports: list[FakeTransport]) -> None:

    manager = AsyncMCPClientManager(TWO)
    stream = manager.events()
    async with manager:
        pass
    events = [event async for event in stream]
    assert {event.server for event in events if isinstance(event, ToolsChanged)} == {"one", "two"}
    assert [event.new.value for event in events if isinstance(event, StateChanged) and event.server == "two"] == [
        "starting",
        "ready",
        "closed",
    ]


async def test_listeners_are_the_synchronous_managers(transports: list[FakeTransport]) -> None:
    told: list[Event] = []

    manager = AsyncMCPClientManager(ONE)
    unsubscribe = manager.subscribe(told.append)
    async with manager:
        pass
    unsubscribe()
    assert told
