"""pydantic-ai's own agent loop with a scripted model, and a server that is killed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install pydantic-ai-slim")
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    InlineDefsJsonSchemaTransformer,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls, Instrumentation
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel

from gaia.adapters.pydantic_ai import MCPManagerToolset, MCPProgressEvent
from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer, FakeTool
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import HOLD, AdapterContract, Begin, Play, Step, Told
from tests.servers.ledger_server import DOCUMENT, PIXEL
from tests.tracing import Tracing, attributes_of

pytestmark = [
    pytest.mark.process,
    # Of pydantic-ai's and of what it imports, for its own future.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class Script:
    """A model that calls tools as it is told, and then says ``done``."""

    def __init__(self, *steps: Step | list[tuple[str, dict[str, Any]]]) -> None:
        self._steps: Iterator[Any] = iter(steps)
        self.offered: list[set[str]] = []
        """The names of the tools, at each request."""
        self.results: list[ToolReturnPart] = []
        """What came back from tools."""
        self.model = FunctionModel(self._respond)

    def _respond(self, messages: list[Any], info: AgentInfo) -> ModelResponse:
        self.offered.append({tool.name for tool in info.function_tools})
        if isinstance(last := messages[-1], ModelRequest):
            self.results += [part for part in last.parts if isinstance(part, ToolReturnPart)]
        while callable(calls := next(self._steps, None)):
            calls()
        if calls is None:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*call) for call in (calls if isinstance(calls, list) else [calls])])

    @property
    def outcomes(self) -> list[tuple[str, Any]]:
        return [(part.outcome, part.content) for part in self.results]


def run(script: Script, manager: Manager, selection: Any = None, **settings: Any) -> str:
    agent = Agent(script.model, toolsets=[MCPManagerToolset(manager, **selection or {})], **settings)

    async def main() -> str:
        output: str = (await agent.run("go")).output
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return output

    return asyncio.run(main())


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self) -> Play:
        def play(manager: Manager, *steps: Any, settings: Any = None, **selection: Any) -> list[Told]:
            script = Script(*steps)
            assert run(script, manager, selection, retries=1, **settings or {}) == "done"
            return [Told(str(content), outcome != "success") for outcome, content in script.outcomes]

        return play

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, *steps: Agent(Script(*steps).model, toolsets=[MCPManagerToolset(manager)]).run("go")

    @pytest.fixture
    def answer(self, play: Play) -> Play:
        def answer(manager: Manager, approved: bool, *steps: Any, **selection: Any) -> list[Told]:
            async def handler(_: Any, requests: DeferredToolRequests) -> DeferredToolResults:
                return DeferredToolResults(approvals={call.tool_call_id: approved for call in requests.approvals})

            capabilities = [HandleDeferredToolCalls(handler=handler)]
            return play(manager, *steps, settings={"capabilities": capabilities}, **selection)

        return answer


def test_structured_content_is_the_result(manager: MCPClientManager) -> None:
    script = Script(("mcp_ledger_add", {"a": 2, "b": 3}), ("mcp_ledger_figures", {}))

    run(script, manager)

    assert script.outcomes == [("success", {"sum": 5}), ("success", {"height": 2})]


@pytest.mark.parametrize(("call", "told"), [(HOLD, "failed"), (("mcp_ledger_fail", {"message": "no"}), "retried")])
def test_the_model_is_asked_to_correct_only_what_the_tool_reports(
    manager: MCPClientManager, killer: Killer, call: Step, told: str
) -> None:
    script = Script(call, ("mcp_ledger_echo", {"text": "next"}))

    with killer.during("held") if call is HOLD else contextlib.nullcontext():
        # A lost call needs no retry to be permitted.
        assert run(script, manager, retries=0 if call is HOLD else 1) == "done"

    assert [outcome for outcome, _ in script.outcomes] == [told, "success"]


def test_calls_of_one_answer_run_side_by_side_and_fail_alone(
    manager: MCPClientManager, ledger: Ledger, killer: Killer
) -> None:
    script = Script([("mcp_ledger_hold", {"text": f"lost {n}"}) for n in range(3)], ("mcp_ledger_echo", {"text": "on"}))

    with killer.during("lost 0", "lost 1", "lost 2"):
        assert run(script, manager) == "done"

    assert [outcome for outcome, _ in script.outcomes] == ["failed", "failed", "failed", "success"]
    assert sorted(ledger.lines) == ["lost 0", "lost 1", "lost 2"]


def test_errors_that_the_tool_reports_count_as_retries(manager: MCPClientManager) -> None:
    failing = ("mcp_ledger_fail", {"message": "again"})
    agent = Agent(Script(failing, failing).model, toolsets=[MCPManagerToolset(manager)], retries=1)

    with pytest.raises(UnexpectedModelBehavior, match="max retries"):
        asyncio.run(agent.run("go"))


def test_images_and_files_are_shown(manager: MCPClientManager) -> None:
    script = Script(("mcp_ledger_picture", {}))

    run(script, manager)

    ((_, content),) = script.outcomes
    files = [(part.data, part.media_type) for part in content if isinstance(part, BinaryContent)]
    picture = (base64.b64decode(PIXEL), "image/png")
    assert files == [picture, (b"12345", "audio/wav"), picture, (base64.b64decode(DOCUMENT), "application/pdf")]
    assert content[0] == "one pixel"


def test_runs_of_synchronous_code_work_with_the_same_toolset(manager: MCPClientManager) -> None:
    toolset = MCPManagerToolset[None](manager, id="servers")
    assert toolset.id == "servers"
    # `run_sync` keeps the loop of its thread for later runs.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        for text in ("a", "b"):
            script = Script(("mcp_ledger_record", {"text": text}))
            Agent(script.model, toolsets=[toolset]).run_sync("go")
            assert script.outcomes == [("success", f"recorded {text}, 1 times")]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_the_schemas_are_those_of_the_servers(manager: MCPClientManager) -> None:
    """pydantic-ai's own test model makes up arguments by the schema, and calls each tool that it is told to."""
    model = TestModel(call_tools=["mcp_ledger_add", "mcp_ledger_echo", "mcp_ledger_record"])

    result = asyncio.run(Agent(model, toolsets=[MCPManagerToolset(manager)]).run("go"))

    returned = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in returned] == ["success"] * 3
    assert model.last_model_request_parameters is not None
    tools = {tool.name: tool for tool in model.last_model_request_parameters.function_tools}
    add = tools["mcp_ledger_add"]
    assert set(add.parameters_json_schema["properties"]) == {"a", "b"}
    assert add.metadata is not None
    assert (add.metadata["server"], add.metadata["annotations"]["readOnlyHint"]) == ("ledger", True)


def test_the_frameworks_span_of_a_call_has_our_attributes(tracing: Tracing, manager: MCPClientManager) -> None:
    """The conventions advise against a second span inside of ``execute_tool``."""
    script = Script(("mcp_ledger_add", {"a": 1, "b": 1}))
    settings = InstrumentationSettings(tracer_provider=tracing.provider)

    run(script, manager, capabilities=[Instrumentation(settings=settings)])

    attributes = attributes_of(tracing.only("execute_tool mcp_ledger_add"))
    assert attributes["mcp.method.name"] == "tools/call"


@pytest.mark.parametrize(
    "argument", [{"type": "string", "required": True}, {"$ref": 5}, {"$ref": "https://other.example/schema.json"}, 7]
)
def test_a_schema_that_is_none_does_not_end_the_run(argument: object) -> None:
    schema = {"type": "object", "properties": {"a": argument}}
    server = FakeServer("odd", tools=[FakeTool(lambda a: f"got {a}", name="echo", inputSchema=schema)])
    script = Script(("mcp_odd_echo", {"a": "1"}))
    # As the models of most providers do.
    script.model.profile["json_schema_transformer"] = InlineDefsJsonSchemaTransformer

    with MCPClientManager({"odd": server}) as manager:
        manager.require("odd")
        run(script, manager)

    assert script.outcomes == [("success", "got 1")]


def test_progress_is_an_event_of_the_run(manager: MCPClientManager) -> None:
    events: list[Any] = []

    async def handler(_: Any, stream: Any) -> None:
        events.extend([event async for event in stream if isinstance(event, MCPProgressEvent)])

    agent = Agent(TestModel(call_tools=["mcp_ledger_steps"]), toolsets=[MCPManagerToolset(manager)])
    asyncio.run(agent.run("go", event_stream_handler=handler))

    assert [(event.tool_name, event.progress, event.total) for event in events] == [
        ("mcp_ledger_steps", 1, 2),
        ("mcp_ledger_steps", 2, 2),
    ]


def test_instructions_of_the_servers_are_added_on_request(demo_of: Callable[..., Any]) -> None:
    with demo_of("Ask before you delete.") as manager:
        for wanted in (True, False):
            model = TestModel(call_tools=[])
            toolset = MCPManagerToolset[None](manager, instructions=wanted)
            asyncio.run(Agent(model, toolsets=[toolset], instructions="Help.").run("go"))
            assert ("Ask before you delete." in str(model.last_model_request_parameters)) is wanted
