"""Strands' own agent, with a model that plays a script, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import HOLD, RECORD, AdapterContract, Begin, Json, Play, Step, Told
from tests.servers.ledger_server import PIXEL
from tests.tracing import Tracing

pytest.importorskip("strands", reason="Strands Agents is not installed: pip install strands-agents")

from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.models import Model

from gaia.adapters.strands import MCPManagerPlugin, strands_tools

Run = Callable[[Agent], list[Json]]


class ScriptedModel(Model):
    """Makes the calls of its script, one or a list of them a turn, and answers. Functions are run between them."""

    def __init__(self, *steps: Step | list[Step]) -> None:
        self.steps = list(steps)
        self.shown: list[set[str]] = []
        """The names of the tools that each turn was shown."""

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Json:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.shown.append({spec["name"] for spec in tool_specs or ()})
        while self.steps and callable(step := self.steps[0]):
            # The script waits for other threads.
            await asyncio.to_thread(step)
            del self.steps[0]
        yield {"messageStart": {"role": "assistant"}}
        if self.steps:
            calls = self.steps.pop(0)
            for name, arguments in calls if isinstance(calls, list) else [calls]:
                # Some providers give all calls the same id.
                yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": "call"}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
                yield {"contentBlockStop": {}}
            reason = "tool_use"
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
            reason = "end_turn"
        yield {"messageStop": {"stopReason": reason}}


def agent_with(manager: Manager, *steps: Step | list[Step], selection: Any = None, **options: Any) -> Agent:
    plugins = [MCPManagerPlugin(manager, **selection or {})]
    return Agent(model=ScriptedModel(*steps), plugins=plugins, callback_handler=None, **options)


@pytest.fixture(params=["call", "invoke_async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an agent to its end, synchronously or on an event loop; returns what it was told of its calls."""

    async def invoke(agent: Agent) -> Any:
        result = await agent.invoke_async("go on")
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, "the run left a task behind"
        return result

    def run(agent: Agent) -> list[Json]:
        result = agent("go on") if request.param == "call" else asyncio.run(invoke(agent))
        assert result.stop_reason == "end_turn"
        return results(agent)

    return run


def results(agent: Agent) -> list[Json]:
    return [block["toolResult"] for message in agent.messages for block in message["content"] if "toolResult" in block]


def told(results: list[Json]) -> list[Told]:
    return [
        Told("".join(block.get("text", "") for block in one["content"]), one["status"] == "error") for one in results
    ]


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self, run: Run) -> Play:
        def play(manager: Manager, *steps: Step, **selection: Any) -> list[Told]:
            tools = strands_tools(manager, **selection)
            return told(run(Agent(model=ScriptedModel(*steps), tools=tools, callback_handler=None)))

        return play

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, *steps: agent_with(manager, *steps).invoke_async("go on")

    @pytest.fixture
    def answer(self) -> Play:
        def answer(manager: Manager, approved: bool, *steps: Step, **selection: Any) -> list[Told]:
            agent = agent_with(manager, *steps, selection=selection)
            (question,) = agent("go on").interrupts
            assert question.reason == {"tool": "mcp_ledger_record", "arguments": {"text": "next"}}
            assert agent([{"interruptResponse": {"interruptId": question.id, "response": approved}}]).stop_reason
            return told(results(agent))

        return answer


def test_the_agent_calls_the_tool_of_its_plugin(manager: MCPClientManager, run: Run) -> None:
    (result,) = run(agent_with(manager, ("mcp_ledger_add", {"a": 19, "b": 2})))

    assert result == {
        "toolUseId": "call",
        "status": "success",
        "content": [{"text": '{"sum": 21}'}],
        "structuredContent": {"sum": 21},
    }


def test_a_hook_that_repeats_what_failed_does_not_make_the_call_again(
    manager: MCPClientManager, run: Run, killer: Killer, ledger: Ledger
) -> None:
    retries: list[str] = []

    def retry(event: AfterToolCallEvent) -> None:
        event.retry = event.result["status"] == "error" and len(retries) < 3
        retries.extend([event.result["content"][0]["text"]] * event.retry)

    agent = agent_with(manager, HOLD, RECORD)
    agent.add_hook(retry, AfterToolCallEvent)

    with killer.during("held"):
        told = run(agent)

    assert len(retries) == 3
    assert all("Do not repeat it" in text for text in retries)
    assert [result["status"] for result in told] == ["error", "success"]
    assert ledger.lines == ["held", "next"]


def test_an_approval_is_for_the_call_with_these_arguments_only(manager: MCPClientManager, ledger: Ledger) -> None:
    calls: list[Step] = [("mcp_ledger_record", {"text": text}) for text in ("good", "bad")]
    agent = agent_with(manager, calls, selection={"approve": ["record"]})

    def answers(questions: Any) -> list[Any]:
        """Only True approves."""
        responses = [(one.id, True if one.reason["arguments"]["text"] == "good" else "yes") for one in questions]
        return [{"interruptResponse": {"interruptId": one, "response": response}} for one, response in responses]

    result = agent("go on")
    while result.stop_reason == "interrupt":
        result = agent(answers(result.interrupts))

    assert ledger.lines == ["good"]


def test_an_approval_is_for_one_call_even_if_a_hook_stops_that(manager: MCPClientManager, ledger: Ledger) -> None:
    agent = agent_with(manager, RECORD, RECORD, selection={"approve": ["record"]})
    answers = [True, False]

    def stop(event: BeforeToolCallEvent) -> None:
        event.cancel_tool = len(answers) == 1

    agent.add_hook(stop, BeforeToolCallEvent)
    result, state = agent("go on"), Json()
    while result.stop_reason == "interrupt":
        (question,) = result.interrupts
        answer = {"interruptId": question.id, "response": answers.pop(0)}
        result = agent([{"interruptResponse": answer}], invocation_state=state)

    assert (answers, ledger.lines) == ([], [])


def test_an_agent_that_is_cancelled_cancels_its_call(manager: MCPClientManager, ledger: Ledger) -> None:
    agent = agent_with(manager, HOLD)

    def cancel() -> None:
        ledger.wait_for("held")
        agent.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    result = agent("go on")
    canceller.join()

    assert result.stop_reason == "cancelled"
    (told,) = results(agent)
    assert "the agent was cancelled" in told["content"][0]["text"]
    assert ledger.lines == ["held"]


def test_pictures_are_images_and_a_pdf_is_a_document(manager: MCPClientManager, run: Run) -> None:
    (result,) = run(agent_with(manager, ("mcp_ledger_picture", {})))

    assert result["content"][0] == {"text": "one pixel"}
    images = [block["image"] for block in result["content"] if "image" in block]
    assert images == [{"format": "png", "source": {"bytes": base64.b64decode(PIXEL)}}] * 2
    document = {"format": "pdf", "name": "demo a pdf", "source": {"bytes": b"%PDF-1.7"}}
    assert result["content"][-1] == {"document": document}


def test_the_model_is_given_the_tools_that_are_listed_at_that_moment(manager: MCPClientManager, run: Run) -> None:
    @tool
    def mcp_ledger_add() -> str:
        """The application's own tool, which has the name of one of the server."""
        return "own"

    model_calls = (("mcp_ledger_add", {}), lambda: manager.remove_server("ledger"), RECORD)
    agent = agent_with(manager, *model_calls, tools=[mcp_ledger_add])

    own, gone = run(agent)

    assert own["content"] == [{"text": "own"}]
    assert gone["status"] == "error"
    first, _, last = agent.model.shown
    assert {"mcp_ledger_add", "mcp_ledger_record"} <= first
    assert last == {"mcp_ledger_add"}


def test_the_span_of_strands_says_what_was_called(manager: MCPClientManager, tracing: Tracing) -> None:
    agent = agent_with(manager, RECORD)
    agent.tracer.tracer = tracing.provider.get_tracer("strands")

    agent("go on")

    attributes = tracing.only("execute_tool mcp_ledger_record").attributes
    assert (attributes["mcp.method.name"], attributes["gen_ai.tool.name"]) == ("tools/call", "record")


def test_progress_is_in_the_stream(manager: MCPClientManager) -> None:
    agent = agent_with(manager, ("mcp_ledger_steps", {}))

    async def streamed() -> list[Any]:
        events = [
            event["tool_stream_event"] async for event in agent.stream_async("go") if "tool_stream_event" in event
        ]
        return [event["data"]["progress"] for event in events if event["data"].get("type") == "mcp_progress"]

    assert asyncio.run(streamed()) == [1, 2]
