"""Processes of sessions and clients, behind a gateway that is served for real. All servers are real."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from gaia.mcp.client import MCPClientManager
from gaia.mcp.gateway import Gateway
from gaia.testing import FakeServer
from tests.gateway.running import running
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
FaultServer = Callable[..., Json]
HANDLE = "gaia.mcp/instances"


async def pid(client: Client, **meta: str) -> int:
    return int((await client.call_tool("it_pid", meta=meta or None)).content[0].text)


async def dead(*pids: int) -> bool:
    return await asyncio.to_thread(wait_until, lambda: not any(map(is_alive, pids)))


async def test_each_session_has_a_process_that_ends_with_it(fault_server: FaultServer, tmp_path: Path) -> None:
    server = {**fault_server(state_file=tmp_path / "state"), "instances": "per-session"}

    async with running({"it": server}) as url:
        async with Client(f"{url}/mcp", mode="legacy") as one:
            first = await pid(one)
            async with Client(f"{url}/mcp", mode="legacy") as other:
                second = await pid(other)
                assert second != first
                assert await pid(one) == first
                assert await pid(other) == second
            assert await dead(second)
            assert await pid(one) == first
        assert await dead(first)
        # That of the lists, and a spare.
        state = tmp_path / "state"
        assert await asyncio.to_thread(wait_until, lambda: sum(map(is_alive, read_state(state).pids)) == 2)
    assert not any(map(is_alive, read_state(tmp_path / "state").pids))


async def test_sessions_of_one_client_share_its_process(fault_server: FaultServer) -> None:
    async with (
        running({"it": {**fault_server(), "instances": "per-client"}}) as url,
        Client(f"{url}/mcp", mode="legacy") as one,
        Client(f"{url}/mcp", mode="auto") as other,
    ):
        assert await pid(one) == await pid(other)


async def test_a_stateless_client_names_its_instance_by_a_handle(fault_server: FaultServer, tmp_path: Path) -> None:
    server = {**fault_server(state_file=tmp_path / "state"), "instances": "per-session"}

    async with running({"it": server}) as url, Client(f"{url}/mcp", mode="auto") as client:
        common = await pid(client)
        assert await pid(client) == common
        result = await client.call_tool("it_pid", meta={HANDLE: "new"})
        handle = (result.meta or {})[HANDLE]
        own = int(result.content[0].text)
        assert own != common
        assert await pid(client, **{HANDLE: handle}) == own
        assert await pid(client) == common
        with pytest.raises(MCPError, match="no such handle"):
            await pid(client, **{HANDLE: "guessed"})
        assert HANDLE not in str((await client.call_tool("it_received")).content[0].text)


async def test_there_is_a_bound(fault_server: FaultServer) -> None:
    server = {**fault_server(), "instances": "per-session", "maxInstances": 1}

    async with running({"it": server}) as url, Client(f"{url}/mcp", mode="legacy") as one:
        await pid(one)
        async with Client(f"{url}/mcp", mode="legacy") as other:
            with pytest.raises(MCPError, match="maxInstances") as refused:
                await pid(other)
            assert refused.value.error.data["delivery"] == "not_sent"
        await pid(one)


async def test_one_that_is_idle_is_stopped_and_gives_way(fault_server: FaultServer, tmp_path: Path) -> None:
    server = {
        **fault_server(state_file=tmp_path / "state"),
        "instances": "per-session",
        "maxInstances": 1,
        "idleStop": 0.1,
    }

    async with running({"it": server}) as url, Client(f"{url}/mcp", mode="legacy") as one:
        first = await pid(one)
        assert await dead(first)
        async with Client(f"{url}/mcp", mode="legacy") as other:
            assert await pid(other) != first
        again = await pid(one)
        assert again != first
        assert await dead(again)


async def test_a_session_does_not_wait_for_a_start(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    # Those after the shared one, that of the first session and a spare never get ready.
    slow = {str(start): {"start_delay": 300.0} for start in range(4, 10)}
    server = {
        **fault_server(state_file=state, by_start=slow),
        "instances": "per-session",
        "timeout": 300.0,
        "protocol": "handshake",
    }

    async with running({"it": server}) as url, Client(f"{url}/mcp", mode="legacy") as one:
        first = await pid(one)
        assert await asyncio.to_thread(wait_until, lambda: read_state(state).starts == 3)
        started = set(read_state(state).pids)
        async with Client(f"{url}/mcp", mode="legacy") as other:
            assert await asyncio.wait_for(pid(other), PATIENCE) in started - {first}


async def test_a_lazy_server_has_no_spare(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "instances": "per-session", "lazy": True}

    async with running({"it": server}) as url, Client(f"{url}/mcp", mode="legacy") as one:
        assert read_state(state).starts == 1
        await one.list_tools()
        assert read_state(state).starts == 1
        await pid(one)
        assert read_state(state).starts == 2


def test_instances_follow_another_configuration(fault_server: FaultServer, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    entries = [{**fault_server(state_file=state), "instances": "per-session"} for state in (old, new)]

    async def use(manager: MCPClientManager) -> None:
        async with running(Gateway(manager)) as url, Client(f"{url}/mcp", mode="legacy") as one:
            first = await pid(one)
            await asyncio.to_thread(manager.apply, {"it": entries[1]})
            async with asyncio.timeout(PATIENCE):
                # No call fails meanwhile.
                while await pid(one) == first:
                    pass
            assert await pid(one) in read_state(new).pids
            async with Client(f"{url}/mcp", mode="legacy") as other:
                assert await pid(other) in read_state(new).pids
            await asyncio.to_thread(manager.apply, {})
            with pytest.raises(MCPError, match="Unknown tool"):
                await pid(one)
            assert await dead(*read_state(old).pids, *read_state(new).pids)

    with MCPClientManager({"it": entries[0]}) as manager:
        asyncio.run(use(manager))


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_session_is_told_of_resources_by_its_own_process() -> None:
    server = FakeServer("it", resources={"file:///a": "1"})
    told = asyncio.Event()

    async def handle(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            told.set()

    async def use(manager: MCPClientManager) -> None:
        async with (
            running(Gateway(manager)) as url,
            Client(f"{url}/mcp", mode="legacy", message_handler=handle) as client,
        ):
            await client.subscribe_resource("file:///a")
            shared = manager.get_client("it")
            assert shared is not None
            assert not shared._engine.subscriptions.resources
            server.resources.update("file:///a", "2")
            await asyncio.wait_for(told.wait(), PATIENCE)

    with MCPClientManager({"it": {**server, "instances": "per-session"}}) as manager:
        asyncio.run(use(manager))
