"""Between the event loop and the agent's threads: rounds of questions, cancelled requests, too many calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from gaia.agents.base.mcp_context import MCPCapabilityMissing, current_mcp_context
from gaia.mcp.server.calls import MAX_ROUNDS, Calls, MayHaveActed
from gaia.runtime.cancellation import current_scope
from gaia.serving.threads import WorkerThreads
from tests.serving.agents import QuietAgent, tool
from tests.waiting import PATIENCE

FORM = {"type": "object", "properties": {}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Go on?", "requestedSchema": FORM}}
PARAMS = types.CallToolRequestParams(name="t")


@pytest.fixture
def calls() -> Iterator[Calls]:
    threads = WorkerThreads(2)
    yield Calls(threads)
    threads.close(10)


class Insatiable(QuietAgent):
    """Answers each call with a further question."""

    def __init__(self, question: dict[str, Any] = QUESTION) -> None:
        super().__init__(silent_mode=True)
        self.question = question
        self.states: list[str | None] = []

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [tool("t")]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.states.append(self.mcp_context.request_state)
        state = f"asked {len(self.states)} times"
        return {"resultType": "input_required", "inputRequests": {"q": self.question}, "requestState": state}


async def agree(_context: Any, _params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_agent_that_never_has_enough_answers_is_stopped(mode: str, use: Callable[..., None]) -> None:
    agent = Insatiable()

    async def talk(client: Client) -> None:
        # No error, after which clients may call again: the agent may have acted.
        result = await client.call_tool("t", {})
        assert (result.is_error, f"More than {MAX_ROUNDS} rounds" in result.content[0].text) == (True, True)

    use(agent, talk, mode=mode, elicitation_callback=agree, input_required_max_rounds=100)
    assert agent.states == [None, *(f"asked {number} times" for number in range(1, MAX_ROUNDS))]


def test_a_question_in_no_form_of_the_protocol_is_the_agents_error(
    use: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(client: Client) -> None:
        result = await client.call_tool("t", {})
        assert (result.is_error, "asked for input in a form" in result.content[0].text) == (True, True)

    use(Insatiable({"method": "elicitation/create", "params": {"message": 7}}), talk, elicitation_callback=agree)
    assert "input_requests_invalid" in caplog.text


@pytest.mark.parametrize(
    ("revision", "code", "data"),
    [
        (
            "2026-07-28",
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            {"requiredCapabilities": {"elicitation": {"url": {}}}},
        ),
        ("2025-11-25", types.INVALID_REQUEST, None),
    ],
)
def test_a_missing_capability_is_told_as_the_era_has_it(
    revision: str, code: int, data: Any, calls: Calls, make_request: Callable[..., Any]
) -> None:
    def ask() -> dict[str, Any]:
        raise MCPCapabilityMissing("elicitation.url")

    async def call() -> None:
        with pytest.raises(MCPError) as raised:
            await calls.interactive(make_request(revision), PARAMS, ask)
        assert (raised.value.error.code, raised.value.error.data) == (code, data)

    asyncio.run(call())


def test_the_agent_finds_its_request_and_the_scope_of_it(calls: Calls, make_request: Callable[..., Any]) -> None:
    found: list[Any] = []

    def look() -> dict[str, Any]:
        context = current_mcp_context.get()
        found.extend([context, current_scope(), set(calls.in_flight)])
        return {"done": True}

    async def call() -> None:
        assert await calls.interactive(make_request(request_id="r7"), PARAMS, look) == {"done": True}

    asyncio.run(call())
    context, scope, in_flight = found
    assert context.request_id == "r7"
    assert scope is context.scope
    assert in_flight == {context}
    assert calls.in_flight == set()


def test_a_request_that_is_cancelled_cancels_what_the_agent_does_for_it(
    calls: Calls, make_request: Callable[..., Any]
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def wait() -> dict[str, Any]:
        context = current_mcp_context.get()
        assert context is not None
        context.on_cancel(cancelled.set)
        begun.set()
        assert cancelled.wait(PATIENCE)
        return {}

    async def call() -> None:
        task = asyncio.create_task(calls.interactive(make_request(), PARAMS, wait))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(call())
    assert cancelled.is_set()
    assert calls.in_flight == set()


def test_calls_beyond_the_limit_are_refused(make_request: Callable[..., Any]) -> None:
    threads = WorkerThreads(1, waiting=0)
    calls = Calls(threads)
    begun, let_go = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return let_go.wait(PATIENCE)

    async def call() -> None:
        first = asyncio.create_task(calls.plain(hold))
        await asyncio.to_thread(begun.wait, 10)
        for refused in (calls.plain(dict), calls.interactive(make_request(), PARAMS, dict)):
            with pytest.raises(MCPError, match="The server is busy") as raised:
                await refused
            assert not isinstance(raised.value, MayHaveActed)
        let_go.set()
        assert await first

    asyncio.run(call())
    assert calls.in_flight == set()
    threads.close(10)
