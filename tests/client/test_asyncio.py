"""asyncio programs with real servers: results, crashes, cancellation, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gaia.mcp import MCPClientManager, Restarted, ServerState, ToolsChanged
from gaia.mcp.aio import AsyncMCPClient, AsyncMCPClientManager
from tests.servers.answers import text
from tests.servers.http_server import Exchange, ScriptedServer
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


async def received(client: AsyncMCPClient) -> list[Json]:
    messages: list[Json] = json.loads(text(await client.call_tool("received")))
    return messages


class TestOverStdio:
    def test_a_thousand_calls_at_once_on_one_server(self, fault_server: FaultServer) -> None:
        async def main() -> list[str]:
            async with AsyncMCPClientManager({"fault": fault_server()}) as manager:
                calls = (manager.call_tool("mcp_fault_echo", {"text": str(n)}) for n in range(1000))
                return [text(result) for result in await asyncio.gather(*calls)]

        assert run(main()) == [str(n) for n in range(1000)]

    def test_a_cancelled_task_tells_the_server(self, fault_server: FaultServer) -> None:
        hangs = fault_server(faults=[{"tool": "pid", "hang": True}])

        async def main() -> list[Json]:
            async with AsyncMCPClient.from_config("fault", hangs) as client:
                tasks = [asyncio.create_task(client.call_tool("pid")) for _ in range(20)]
                await until(lambda: client.status.in_flight == 20)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                assert all(task.cancelled() for task in tasks)
                return await received(client)

        messages = run(main())
        called = [one["id"] for one in messages if one.get("params", {}).get("name") == "pid"]
        told = [one["params"]["requestId"] for one in messages if one["method"] == "notifications/cancelled"]
        assert len(called) == 20
        assert sorted(told) == sorted(called)

    def test_progress_of_a_real_server_is_reported_in_order(self, fault_server: FaultServer) -> None:
        steps = [{"progress": n, "total": 50} for n in range(1, 51)]
        told: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await asyncio.sleep(0)
            told.append(progress)

        async def main() -> None:
            config = fault_server(faults=[{"tool": "echo", "progress": steps}])
            async with AsyncMCPClientManager({"fault": config}) as manager:
                result = await manager.call_tool("mcp_fault_echo", {"text": "hi"}, on_progress=on_progress)
                assert text(result) == "hi"
                assert len(told) == 50

        run(main())
        assert told == list(range(1, 51))

    def test_a_killed_server_is_back_for_the_next_call_and_runs_none_twice(
        self, fault_server: FaultServer, tmp_path: Path
    ) -> None:
        state = tmp_path / "state"
        config = fault_server(state_file=state, faults=[{"tool": "sleep", "hang": True}])

        async def main() -> None:
            async with AsyncMCPClientManager({"fault": config}) as manager:
                client = the(manager.get_client("fault"))
                events = client.events()
                under_way = asyncio.create_task(manager.call_tool("mcp_fault_sleep", {"seconds": 0}))
                await until(lambda: bool(read_state(state).calls))
                os.kill(client.status.pid or 0, signal.SIGKILL)
                lost = await under_way
                assert (lost["error_type"], lost["delivery"]) == ("server_crashed", "unknown")
                assert text(await manager.call_tool("mcp_fault_echo", {"text": "again"})) == "again"
                async for event in events:
                    if isinstance(event, Restarted):
                        assert event.generation == 2
                        break

        run(main())
        assert [call.tool for call in read_state(state).calls] == ["sleep", "echo"]

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

    def test_resources_prompts_and_events_of_a_server_with_features(self, feature_server: Json) -> None:
        async def main() -> None:
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

        run(main())


class TestOverHttp:
    @pytest.fixture
    def server(self, no_leaks: None) -> Iterator[ScriptedServer]:
        with ScriptedServer().serving() as server:
            yield server

    def test_calls_at_once(self, server: ScriptedServer) -> None:
        async def main() -> list[str]:
            async with AsyncMCPClientManager({"web": {"url": server.url}}) as manager:
                assert len(await manager.list_tools()) == 2
                calls = (manager.call_tool("mcp_web_echo", {"text": str(n)}) for n in range(100))
                return [text(result) for result in await asyncio.gather(*calls)]

        assert run(main()) == [str(n) for n in range(100)]

    def test_a_cancelled_task_leaves_the_request(self, server: ScriptedServer) -> None:
        left = threading.Event()

        def hang(exchange: Exchange) -> None:
            if exchange.wait_for_client_to_leave():
                left.set()

        server.on["tools/call"] = hang

        async def main() -> None:
            async with AsyncMCPClientManager({"web": {"url": server.url}}) as manager:
                task = asyncio.create_task(manager.call_tool("mcp_web_echo"))
                await asyncio.to_thread(server.wait_for, "tools/call")
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await asyncio.to_thread(left.wait, PATIENCE)

        run(main())
