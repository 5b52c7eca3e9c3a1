"""What a served agent declares, and how its server ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client

from gaia.agents.base.mcp_context import current_mcp_context
from gaia.mcp.server import factory
from gaia.mcp.server.factory import create_server
from tests.serving.agents import QuietAgent, tool
from tests.waiting import PATIENCE

Use = Callable[..., None]


class PartlyServed(QuietAgent):
    """Offers what it is told to."""

    def __init__(self, *offered: str, **info: Any) -> None:
        super().__init__(silent_mode=True)
        self.offered = offered
        self.info = info

    def offers_mcp(self, what: str) -> bool:
        return what in self.offered

    def get_mcp_server_info(self) -> dict[str, Any]:
        return self.info


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("offered", [(), ("prompts",), ("resources", "completions")])
def test_only_what_an_agent_offers_is_declared(offered: tuple[str, ...], mode: str, use: Use) -> None:
    async def talk(client: Client) -> None:
        declared = client.server_capabilities.model_dump(exclude_none=True)
        assert set(declared) == {"tools", "logging", *offered}

    use(PartlyServed(*offered), talk, mode=mode)


def test_a_client_of_the_handshake_era_is_told_that_lists_may_change(use: Use) -> None:
    async def talk(client: Client) -> None:
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.prompts is not None
        assert capabilities.resources is not None
        assert capabilities.tools.list_changed
        assert capabilities.prompts.list_changed
        assert (capabilities.resources.list_changed, capabilities.resources.subscribe) == (True, True)

    use(PartlyServed("prompts", "resources"), talk, mode="legacy")


@pytest.mark.parametrize(
    ("info", "name", "version"),
    [({}, "GAIA agent", ""), ({"name": None, "version": 2}, "GAIA agent", "2"), ({"name": "notes"}, "notes", "")],
)
def test_an_agent_that_tells_little_of_itself_still_has_a_name(
    info: dict[str, Any], name: str, version: str, use: Use
) -> None:
    async def talk(client: Client) -> None:
        assert (client.server_info.name, client.server_info.version) == (name, version)

    use(PartlyServed(**info), talk, mode="legacy")


class TestTheEnd:
    def test_it_cancels_the_calls_under_way(self) -> None:
        begun, cancelled = threading.Event(), threading.Event()

        class Waiting(QuietAgent):
            def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
                return [tool("wait")]

            def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
                context = current_mcp_context.get()
                assert context is not None
                context.on_cancel(cancelled.set)
                begun.set()
                assert cancelled.wait(PATIENCE)
                return {}

        agent = Waiting(silent_mode=True)
        served = create_server(agent)

        async def session() -> None:
            async with Client(served.server) as client:
                async with served.running():
                    call = asyncio.create_task(client.call_tool("wait", {}))
                    await asyncio.to_thread(begun.wait, 10)
                await call

        asyncio.run(session())
        # The client has listed the tools since, to check the result.
        served.threads.close(10)
        assert cancelled.is_set()
        assert served.calls.in_flight == set()

    def test_a_call_that_does_not_end_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(factory, "GRACE", 0.01)
        begun, let_go = threading.Event(), threading.Event()
        served = create_server(QuietAgent(silent_mode=True))

        def hold() -> None:
            begun.set()
            let_go.wait(PATIENCE)

        async def session() -> float:
            async with served.running():
                call = asyncio.create_task(served.threads.run(hold))
                await asyncio.to_thread(begun.wait, 10)
                began = time.monotonic()
            took = time.monotonic() - began
            let_go.set()
            await call
            return took

        assert asyncio.run(session()) < 5


def test_no_more_calls_run_at_once_than_there_are_threads() -> None:
    at_work, most = 0, 0
    lock = threading.Lock()
    three = threading.Semaphore(0)

    class Counting(QuietAgent):
        def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
            return [tool("count")]

        def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            nonlocal at_work, most
            with lock:
                at_work += 1
                most = max(most, at_work)
            three.release()
            three.acquire()
            with lock:
                at_work -= 1
            return {}

    served = create_server(Counting(silent_mode=True), max_threads=1)

    async def session() -> None:
        async with served.running(), Client(served.server) as client:
            await asyncio.gather(*(client.call_tool("count", {}) for _ in range(5)))

    asyncio.run(session())
    assert most == 1
