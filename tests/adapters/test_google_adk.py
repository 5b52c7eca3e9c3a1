"""ADK's own runner and agent, with a model that plays a script, use a real server that is killed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Ledger
from tests.adapters.contract import HOLD, RECORD, AdapterContract, Begin, Json, Play, Step, Told
from tests.servers.ledger_server import PIXEL
from tests.tracing import Tracing
from tests.waiting import PATIENCE

pytest.importorskip("google.adk", reason="Google ADK is not installed: pip install google-adk")

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins import ReflectAndRetryToolPlugin
from google.adk.runners import InMemoryRunner
from google.adk.telemetry import tracing as adk_tracing
from google.adk.workflow import START, RetryConfig, Workflow, node
from google.genai import types
from pydantic import Field

from gaia.adapters.google_adk import MCPManagerToolset


class ScriptedModel(BaseLlm):
    """Makes the calls of its script, one a turn, and answers. Functions of the script are run between them."""

    model: str = "scripted"
    steps: list[Any]
    requests: list[Any] = Field(default_factory=list)

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.requests.append(request)
        while self.steps and callable(self.steps[0]):
            # The script waits for other threads.
            await asyncio.to_thread(self.steps.pop(0))
        part = types.Part(text="done")
        if self.steps:
            name, arguments = self.steps.pop(0)
            part = types.Part(function_call=types.FunctionCall(name=name, args=arguments))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def agent_with(toolset: MCPManagerToolset, *steps: Step) -> LlmAgent:
    return LlmAgent(name="agent", model=ScriptedModel(steps=list(steps)), tools=[toolset])


def message(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def responses(events: list[Event]) -> list[types.FunctionResponse]:
    return [response for event in events for response in event.get_function_responses()]


def run(runner: InMemoryRunner) -> list[Event]:
    """The events of one run, after which the runner is closed."""

    async def run() -> list[Event]:
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="user")
        turn = runner.run_async(user_id="user", session_id=session.id, new_message=message("go on"))
        events = [event async for event in turn]
        await runner.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, "the run left a task behind"
        return events

    return asyncio.run(run())


def runner_of(toolset: MCPManagerToolset, *steps: Step) -> InMemoryRunner:
    return InMemoryRunner(agent=agent_with(toolset, *steps), app_name="test")


async def turn(runner: InMemoryRunner, session: str, said: types.Content) -> list[Event]:
    """The events of one turn of a session, which is made first if there is none."""
    service = runner.session_service
    if await service.get_session(app_name="test", user_id="user", session_id=session) is None:
        await service.create_session(app_name="test", user_id="user", session_id=session)
    return [event async for event in runner.run_async(user_id="user", session_id=session, new_message=said)]


def answers(toolset: MCPManagerToolset, *steps: Step) -> list[Json]:
    """What the model of an agent was told of its calls. Exceptions of tools would be a reason to try again."""
    app = App(name="test", root_agent=agent_with(toolset, *steps), plugins=[ReflectAndRetryToolPlugin()])
    events = run(InMemoryRunner(app=app))
    assert events[-1].content.parts[0].text == "done"
    return [response.response for response in responses(events)]


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self) -> Play:
        def play(manager: Manager, *steps: Step, **selection: Any) -> list[Told]:
            return [Told(str(one), "error" in one) for one in answers(MCPManagerToolset(manager, **selection), *steps)]

        return play

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, *steps: turn(runner_of(MCPManagerToolset(manager), *steps), "user", message("go on"))

    @pytest.fixture
    def answer(self) -> Play:
        async def main(approved: bool, runner: InMemoryRunner) -> list[Event]:
            events = await turn(runner, "user", message("go on"))
            (question,) = [
                call for event in events for call in event.get_function_calls() if "confirmation" in call.name
            ]
            confirmation = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": approved})
            return await turn(
                runner, "user", types.Content(role="user", parts=[types.Part(function_response=confirmation)])
            )

        def answer(manager: Manager, approved: bool, *steps: Step, **selection: Any) -> list[Told]:
            runner = runner_of(MCPManagerToolset(manager, **selection), *steps)
            return [Told(str(one.response)) for one in responses(asyncio.run(main(approved, runner)))]

        return answer


def test_results_are_structured_content_or_a_text(manager: MCPClientManager) -> None:
    calls = [("mcp_ledger_add", {"a": 19, "b": 2}), ("mcp_ledger_figures", {}), RECORD]

    told = answers(MCPManagerToolset(manager), *calls)

    assert [one["result"] for one in told] == [{"sum": 21}, {"height": 2}, "recorded next, 1 times"]


def test_a_runner_without_an_event_loop_calls_the_tool(manager: MCPClientManager) -> None:
    runner = InMemoryRunner(agent=agent_with(MCPManagerToolset(manager), RECORD), app_name="test")
    session = asyncio.run(runner.session_service.create_session(app_name="test", user_id="user"))

    events = list(runner.run(user_id="user", session_id=session.id, new_message=message("go on")))

    assert [response.response for response in responses(events)] == [{"result": "recorded next, 1 times"}]


@pytest.mark.filterwarnings("ignore:.*ResumabilityConfig:UserWarning")
def test_a_run_that_is_resumed_does_not_make_the_call_again(manager: MCPClientManager, ledger: Ledger) -> None:
    agent = agent_with(MCPManagerToolset(manager), HOLD)
    app = App(name="test", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    runner = InMemoryRunner(app=app)

    async def interrupt_and_resume() -> list[Event]:
        session = await runner.session_service.create_session(app_name="test", user_id="user")
        before: list[Event] = []

        async def begin() -> None:
            turn = runner.run_async(user_id="user", session_id=session.id, new_message=message("go on"))
            before.extend([event async for event in turn])

        begun = asyncio.create_task(begin())
        await asyncio.to_thread(ledger.wait_for, "held")
        begun.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await begun
        stored = await runner.session_service.get_session(app_name="test", user_id="user", session_id=session.id)
        invocation = stored.events[-1].invocation_id
        return [
            event async for event in runner.run_async(user_id="user", session_id=session.id, invocation_id=invocation)
        ]

    (response,) = responses(asyncio.run(asyncio.wait_for(interrupt_and_resume(), PATIENCE)))

    assert "Do not repeat it" in response.response["error"]
    assert ledger.lines == ["held"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_node_of_a_workflow_that_is_retried_does_not_make_the_call_again(
    manager: MCPClientManager, ledger: Ledger
) -> None:
    async def arguments() -> Json:
        return {"text": "held"}

    async def workflow() -> Workflow:
        tools = await MCPManagerToolset(manager, tool_filter=["mcp_ledger_hold"]).get_tools()
        retry = RetryConfig(max_attempts=100, initial_delay=0.0, jitter=0.0)
        held = node(tools[0], retry_config=retry, timeout=0.5)
        return Workflow(name="workflow", edges=[(START, arguments), (arguments, held)])

    events = run(InMemoryRunner(node=asyncio.run(workflow()), app_name="test"))

    assert {event.error_code for event in events if event.error_code} == {"NodeTimeoutError"}
    assert "Do not repeat it" in events[-1].output["error"]
    # On a machine that stands still, the first attempt can end before the call has arrived.
    assert ledger.lines in (["held"], [])


def test_pictures_and_files_are_parts_of_the_response(manager: MCPClientManager) -> None:
    agent = agent_with(MCPManagerToolset(manager), ("mcp_ledger_picture", {}))

    (response,) = responses(run(InMemoryRunner(agent=agent, app_name="test")))

    assert response.response["result"].startswith("one pixel\n")
    assert not {"images", "files"} & response.response.keys()
    parts = {(part.inline_data.mime_type, part.inline_data.data) for part in response.parts}
    files = {("audio/wav", b"12345"), ("application/pdf", b"%PDF-1.7")}
    assert parts == {("image/png", base64.b64decode(PIXEL)), *files}


def test_the_model_is_given_the_tools_that_are_listed_at_that_moment(manager: MCPClientManager) -> None:
    agent = agent_with(MCPManagerToolset(manager), lambda: manager.remove_server("ledger"), RECORD)

    run(InMemoryRunner(agent=agent, app_name="test"))

    first, last = (request.tools_dict for request in agent.model.requests)
    declaration = first["mcp_ledger_record"]._get_declaration()
    assert declaration.parameters_json_schema["properties"] == {"text": {"type": "string"}}
    assert last == {}


def test_a_filter_and_a_prefix_are_those_of_adk(manager: MCPClientManager) -> None:
    toolset = MCPManagerToolset(manager, tool_filter=["mcp_ledger_record"])
    toolset.tool_name_prefix = "my"

    assert answers(toolset, ("my_mcp_ledger_record", {"text": "next"})) == [{"result": "recorded next, 1 times"}]
    assert [tool.name for tool in asyncio.run(toolset.get_tools_with_prefix())] == ["my_mcp_ledger_record"]


def test_the_span_of_the_call_is_a_child_of_that_of_adk(
    manager: MCPClientManager, tracing: Tracing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adk_tracing, "tracer", tracing.provider.get_tracer("adk"))

    answers(MCPManagerToolset(manager), RECORD)

    assert tracing.call.parent.span_id == tracing.only("execute_tool mcp_ledger_record").context.span_id


def test_closing_the_toolset_leaves_the_manager_to_its_owner(manager: MCPClientManager) -> None:
    toolset = MCPManagerToolset(manager)
    asyncio.run(toolset.close())

    assert not manager.call_tool(*RECORD).is_error


def test_instructions_of_the_servers_are_added_on_request(demo_of: Any) -> None:
    with demo_of("Ask before you delete.") as manager:
        agent = agent_with(MCPManagerToolset(manager, instructions=True))
        run(InMemoryRunner(agent=agent, app_name="test"))

    assert "Ask before you delete." in agent.model.requests[0].config.system_instruction
