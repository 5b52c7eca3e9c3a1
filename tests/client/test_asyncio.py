"""asyncio programs with real servers: many calls, several loops, closed loops, and nothing left behind.

What becomes of single calls is in `tests/contract`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gaia.mcp import MCPClientManager, ServerState, ToolsChanged
from gaia.mcp.aio import AsyncMCPClient, AsyncMCPClientManager
from gaia.mcp.rpc.connection import Connection
from tests.servers.answers import text
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE

Json = dict[str, Any]
FaultServer = Callable[..., Json]
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def the(client: AsyncMCPClient | None) -> AsyncMCPClient:
    assert client is not None
    return client


class TestRealServers:
    def test_a_thousand_calls_at_once_on_one_server(self, fault_server: FaultServer) -> None:
        async def main() -> list[str]:
            async with AsyncMCPClientManager({"fault": fault_server()}) as manager:
                calls = (manager.call_tool("mcp_fault_echo", {"text": str(n)}) for n in range(1000))
                return [text(result) for result in await asyncio.gather(*calls)]

        assert run(main()) == [str(n) for n in range(1000)]

    def test_entering_that_is_cancelled_leaves_no_process(self, fault_server: FaultServer, tmp_path: Path) -> None:
        states = [tmp_path / name for name in ("one", "two")]
        servers = {
            state.name: fault_server(state_file=state, faults=[{"on": "initialize", "hang": True}]) for state in states
        }

        async def main() -> None:
            manager = AsyncMCPClientManager(servers)

            async def use() -> None:
                async with manager:
                    raise AssertionError("it is not entered")

            task = asyncio.create_task(use())
            await until(lambda: all(state.exists() and read_state(state).pids for state in states))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not [pid for state in states for pid in read_state(state).pids if is_alive(pid)]
            assert {status.state for status in manager.status()} <= {ServerState.CLOSED, ServerState.FAILED}

        run(main())

    def test_a_loop_that_is_closed_in_the_middle_leaves_nothing(self, fault_server: FaultServer) -> None:
        with MCPClientManager({"fault": fault_server(faults=[{"tool": "pid", "hang": True}])}) as sync:
            manager = AsyncMCPClientManager.over(sync)
            client = the(manager.get_client("fault"))

            async def main() -> list[asyncio.Task[Any]]:
                tasks = [asyncio.create_task(manager.call_tool("mcp_fault_pid")) for _ in range(5)]
                await until(lambda: client.status.in_flight == 5)
                return tasks

            # `asyncio.run` cancels the tasks that are left, and closes the loop.
            assert all(task.cancelled() for task in asyncio.run(main()))
            assert client.status.in_flight == 0
            assert text(sync.call_tool("mcp_fault_echo", {"text": "sync"})) == "sync"
            assert text(run(manager.call_tool("mcp_fault_echo", {"text": "aio"}))) == "aio"

    def test_several_loops_in_several_threads_share_servers(self, fault_server: FaultServer) -> None:
        found: list[list[str]] = []

        async def main(manager: AsyncMCPClientManager, name: str) -> None:
            calls = (manager.call_tool("mcp_fault_echo", {"text": f"{name}{n}"}) for n in range(50))
            texts = [text(result) for result in await asyncio.gather(*calls)]
            assert texts == [f"{name}{n}" for n in range(50)]
            found.append(texts)

        with MCPClientManager({"fault": fault_server()}) as sync:
            manager = AsyncMCPClientManager.over(sync)
            threads = [threading.Thread(target=lambda name=name: run(main(manager, name))) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
        assert len(found) == 4

    async def test_resources_prompts_and_events_of_a_server_with_features(self, feature_server: Json) -> None:
        async with AsyncMCPClient.from_config("demo", feature_server) as client:
            assert len(await client.list_resources()) == 2
            contents = (await client.read_resource("demo://greeting"))["contents"]
            assert contents[0]["text"] == "Hello from the gaia demo server."
            assert [prompt["name"] for prompt in await client.list_prompts()] == ["greet"]
            assert (await client.get_prompt("greet", {"name": "Ann"}))["messages"]
            before = len(await client.list_tools())
            events = client.events()
            await client.call_tool("grow")
            async for event in events:
                if isinstance(event, ToolsChanged):
                    break
            assert len(await client.list_tools()) == before + 1


class TestReadingOnTheLoop:
    """The loop whose tasks wait reads what the server writes, and the reader's thread does when the loop cannot."""

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The threads that read messages, one after the other."""
        threads: list[int] = []
        received = Connection.message_received

        def note(connection: Connection, *message: Any) -> None:
            threads.append(threading.get_ident())
            received(connection, *message)

        monkeypatch.setattr(Connection, "message_received", note)
        return threads

    @pytest.fixture
    def served(self, fault_server: FaultServer, reading: list[int]) -> Callable[[Callable[..., Any]], Any]:
        async def main(use: Callable[[AsyncMCPClientManager], Coroutine[Any, Any, T]]) -> T:
            async with AsyncMCPClientManager({"fault": fault_server()}) as manager:
                while reading[-1] != threading.get_ident():
                    await manager.call_tool("mcp_fault_echo", {"text": "x"})
                return await use(manager)

        return lambda use: run(main(use))

    def test_a_call_that_blocks_the_loop_is_answered(self, served: Callable[..., Any], reading: list[int]) -> None:
        async def use(manager: AsyncMCPClientManager) -> str:
            awaited = asyncio.create_task(manager.call_tool("mcp_fault_echo", {"text": "awaited"}))
            await asyncio.sleep(0)
            answer = text(manager.sync.call_tool("mcp_fault_echo", {"text": "on the loop's own thread"}))
            assert reading[-1] != threading.get_ident()
            assert text(await awaited) == "awaited"
            return answer

        assert served(use) == "on the loop's own thread"

    def test_a_future_that_the_loop_waits_for_is_completed(self, served: Callable[..., Any]) -> None:
        async def use(manager: AsyncMCPClientManager) -> str:
            client = the(manager.get_client("fault")).sync
            return text(client.submit_tool("echo", {"text": "submitted"}).result(PATIENCE))

        assert served(use) == "submitted"

    def test_threads_and_other_loops_use_the_client_meanwhile(self, served: Callable[..., Any]) -> None:
        async def use(manager: AsyncMCPClientManager) -> list[str]:
            async def elsewhere() -> str:
                return text(await manager.call_tool("mcp_fault_echo", {"text": "another loop"}))

            calls = (
                manager.call_tool("mcp_fault_echo", {"text": "this loop"}),
                asyncio.to_thread(manager.sync.call_tool, "mcp_fault_echo", {"text": "a thread"}),
            )
            told = [text(result) for result in await asyncio.gather(*calls)]
            return [*told, await asyncio.to_thread(lambda: run(elsewhere()))]

        assert served(use) == ["this loop", "a thread", "another loop"]

    def test_a_server_that_crashes_is_restarted(self, served: Callable[..., Any], reading: list[int]) -> None:
        async def use(manager: AsyncMCPClientManager) -> str:
            client = the(manager.get_client("fault"))
            os.kill(client.status.pid or 0, 9)
            while True:
                result = await client.call_tool("echo", {"text": "again"})
                if not result.get("isError") and "error" not in result and client.status.restarts == 1:
                    return text(result)

        assert served(use) == "again"

    def test_it_is_disconnected_on_the_loops_own_thread(self, served: Callable[..., Any]) -> None:
        async def use(manager: AsyncMCPClientManager) -> list[bool]:
            pid = manager.sync.status()[0].pid
            manager.sync.disconnect_all()
            return [is_alive(pid or 0)]

        assert served(use) == [False]
