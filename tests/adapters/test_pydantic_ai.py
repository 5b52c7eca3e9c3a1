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
    InlineDefsJsonSchemaTransformer,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel

from gaia.adapters.calls import Manager
from gaia.adapters.pydantic_ai import MCPManagerToolset
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer, FakeTool
from tests.adapters.conftest import Killer, Ledger, assert_idle
from tests.adapters.contract import HOLD, AdapterContract, Play, Step, Told
from tests.servers.ledger_server import PIXEL
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


def run(script: Script, manager: Manager, **settings: Any) -> str:
    agent = Agent(script.model, toolsets=[MCPManagerToolset(manager)], **settings)

    async def main() -> str:
        output: str = (await agent.run("go")).output
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return output

    return asyncio.run(main())


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self) -> Play:
        def play(manager: Manager, *steps: Any) -> list[Told]:
            script = Script(*steps)
            assert run(script, manager, retries=1) == "done"
            return [Told(str(content), outcome != "success") for outcome, content in script.outcomes]

        return play


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


def test_a_cancelled_run_cancels_its_call(manager: MCPClientManager, ledger: Ledger) -> None:
    toolset = MCPManagerToolset[None](manager)

    async def main() -> None:
        script = Script(("mcp_ledger_hold", {"text": "given up"}))
        await ledger.cancelled_with("given up", Agent(script.model, toolsets=[toolset]).run("go"))
        # The server lives, and the same toolset serves another run.
        following = Script(("mcp_ledger_record", {"text": "next"}))
        await Agent(following.model, toolsets=[toolset]).run("go")
        assert following.outcomes == [("success", "recorded next, 1 times")]

    asyncio.run(main())
    assert_idle(manager)


def test_errors_that_the_tool_reports_count_as_retries(manager: MCPClientManager) -> None:
    failing = ("mcp_ledger_fail", {"message": "again"})
    agent = Agent(Script(failing, failing).model, toolsets=[MCPManagerToolset(manager)], retries=1)

    with pytest.raises(UnexpectedModelBehavior, match="max retries"):
        asyncio.run(agent.run("go"))


def test_a_server_that_stays_down_does_not_end_the_run(ledger_command: dict[str, Any], ledger: Ledger) -> None:
    with MCPClientManager({"ledger": {**ledger_command, "restart": {"restart": "never"}}}) as manager:
        manager.require("ledger")
        Killer(manager, ledger).kill()
        # The model insists.
        script = Script(*[("mcp_ledger_record", {"text": "a"})] * 3)

        assert run(script, manager, retries=0) == "done"

    assert [outcome for outcome, _ in script.outcomes] == ["failed"] * 3
    assert "had no effect" in script.outcomes[0][1]
    assert ledger.lines == []


def test_the_model_is_told_that_a_lost_call_may_be_repeated_if_it_may(
    manager: MCPClientManager, killer: Killer
) -> None:
    script = Script([("mcp_ledger_read", {"text": "safe"}), ("mcp_ledger_hold", {"text": "unsafe"})])

    with killer.during("safe", "unsafe", end=lambda: manager.stop_server("ledger")):
        run(script, manager, retries=0)

    (safe, safe_text), (unsafe, unsafe_text) = script.outcomes
    assert (safe, unsafe) == ("failed", "failed")
    assert "may be repeated" in safe_text
    assert "Do not repeat it" in unsafe_text


def test_images_are_shown_and_the_rest_is_named(manager: MCPClientManager) -> None:
    script = Script(("mcp_ledger_picture", {}))

    run(script, manager)

    ((_, content),) = script.outcomes
    pictures = [part for part in content if isinstance(part, BinaryContent)]
    assert [(picture.data, picture.media_type) for picture in pictures] == [(base64.b64decode(PIXEL), "image/png")] * 2
    assert content[0] == "one pixel"
    assert content[2] == "[audio, audio/wav, 5 bytes]"


def test_a_tool_that_appears_in_a_run_is_offered_in_its_next_step(
    manager: MCPClientManager, until_grown: Callable[[], None]
) -> None:
    listed = ("mcp_ledger_echo", {"text": "listed"})
    script = Script(("mcp_ledger_grow", {}), until_grown, listed, ("mcp_ledger_grown_1", {}))

    run(script, manager)

    assert "mcp_ledger_grown_1" not in script.offered[0]
    assert "mcp_ledger_grown_1" in script.offered[2]
    assert script.outcomes[2] == ("success", "grown_1")


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
