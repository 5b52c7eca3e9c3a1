"""CrewAI's own crew, with a model that plays a script, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import Field

from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.testing import FakeServer, FakeTool
from tests import leak_check
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import AdapterContract, Play, Told

pytest.importorskip("crewai", reason="CrewAI is not installed: pip install crewai")

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tasks.task_output import TaskOutput
from crewai.tools import BaseTool
from crewai.utilities.agent_utils import convert_tools_to_openai_schema

from gaia.adapters.crewai import crewai_tools, refresh

# CrewAI uses fields of its own that will go away.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Json = dict[str, Any]
Step = tuple[str, Json] | Exception | Callable[[], object]


class ScriptedModel(BaseLLM):
    """Makes the calls of its script, one a turn, and answers."""

    steps: list[Any]
    """Calls, exceptions that are raised, and functions that are run between them."""
    native: bool
    """Whether it makes calls by the API, instead of writing them as text."""
    shown: str = ""
    """What the model was shown last."""
    results: list[str] = Field(default_factory=list)
    """What it was told of its calls, if it makes them by the API."""

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.shown = "\n".join(str(message["content"]) for message in messages)
        self.results = [str(message["content"]) for message in messages if message["role"] == "tool"]
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if not callable(step):
                return self._call(*step)
            step()
        return "done" if self.native else "Thought: I know it\nFinal Answer: done"

    def _call(self, name: str, arguments: Json) -> Any:
        if self.native:
            function = {"name": name, "arguments": json.dumps(arguments)}
            return [{"id": "call", "type": "function", "function": function}]
        return f"Thought: I need it\nAction: {name}\nAction Input: {json.dumps(arguments)}"

    def supports_function_calling(self) -> bool:
        return self.native

    def get_context_window_size(self) -> int:
        return 1_000_000


class Run:
    """Runs a crew to its end, in one of the ways that there are."""

    def __init__(self, native: bool, awaited: bool) -> None:
        self.native, self.awaited = native, awaited
        self.shown = ""
        """What the model was shown last."""

    def __call__(self, tools: list[BaseTool], *steps: Step) -> TaskOutput:
        model = ScriptedModel(model="scripted", steps=list(steps), native=self.native)
        agent = Agent(role="clerk", goal="help", backstory="none", llm=model, tools=tools)
        task = Task(description="go on", expected_output="an answer", agent=agent)
        crew = Crew(agents=[agent], tasks=[task])
        output = asyncio.run(crew.akickoff()) if self.awaited else crew.kickoff()
        assert output.raw == "done"
        self.shown, self.results = model.shown, model.results
        return output.tasks_output[0]


@pytest.fixture(params=[(False, False), (False, True), (True, True)], ids=["text", "text-awaited", "native-awaited"])
def run(request: pytest.FixtureRequest) -> Run:
    return Run(*request.param)


@pytest.fixture
def native() -> Run:
    return Run(True, False)


@pytest.fixture(autouse=True, scope="module")
def crewai_is_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What CrewAI starts once and keeps, and the threads of its event bus, are no leaks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leak_check, "FOREIGN_THREADS", (*leak_check.FOREIGN_THREADS, "CrewAISyncHandler"))
        with patch.context() as home:
            home.setenv("HOME", str(tmp_path_factory.mktemp("home")))
            Run(True, False)([])
        yield


def tool_named(name: str, manager: MCPClientManager) -> BaseTool:
    return next(tool for tool in crewai_tools(manager) if tool.name == name)


class TestContract(AdapterContract):
    # CrewAI itself takes the argument `config`.
    test_arguments_may_have_any_names = None  # type: ignore[assignment]

    @pytest.fixture
    def play(self, native: Run) -> Play:
        def play(manager: Manager, *steps: Step, **selection: Any) -> list[Told]:
            native(crewai_tools(manager, **selection), *steps)
            return [Told(text) for text in native.results]

        return play


def test_the_agent_calls_the_tool(manager: MCPClientManager, run: Run) -> None:
    output = run(crewai_tools(manager), ("mcp_ledger_add", {"a": 19, "b": 2}))

    assert '{"sum": 21}' in run.shown
    assert output.tool_failures == []


def test_a_call_in_which_the_server_is_killed_is_not_repeated_and_the_model_is_told(
    manager: MCPClientManager, run: Run, killer: Killer, ledger: Ledger
) -> None:
    held, after = ("mcp_ledger_hold", {"text": "held"}), ("mcp_ledger_record", {"text": "next"})

    with killer.during("held"):
        output = run(crewai_tools(manager), held, after)

    assert "Do not repeat it" in run.shown
    (record,) = output.tool_failures
    assert record.failure.details == {"error_type": "server_crashed", "delivery": "unknown"}
    assert ledger.lines == ["held", "next"]


def test_an_equal_call_is_made_and_not_answered_from_the_cache(manager: MCPClientManager, run: Run) -> None:
    other = ("mcp_ledger_echo", {"text": "between"})

    run(crewai_tools(manager), ("mcp_ledger_counter", {}), other, ("mcp_ledger_counter", {}))

    assert '{"value": 1}' in run.shown
    assert '{"value": 2}' in run.shown


def test_an_optional_argument_may_be_null_and_is_then_not_sent(manager: MCPClientManager, native: Run) -> None:
    tools = crewai_tools(manager)
    (described,) = convert_tools_to_openai_schema([tool_named("mcp_ledger_fail", manager)])[0]
    message = described["function"]["parameters"]["properties"]["message"]

    native(tools, ("mcp_ledger_fail", {"message": None}))

    assert {"type": "null"} in message["anyOf"]
    assert "Error: this tool always fails" in native.shown


def test_an_exception_of_the_model_repeats_the_task_and_not_the_call(
    manager: MCPClientManager, native: Run, ledger: Ledger
) -> None:
    native(crewai_tools(manager), ("mcp_ledger_record", {"text": "once"}), RuntimeError("the model is overloaded"))

    assert ledger.lines == ["once"]


def test_tools_whose_names_crewai_takes_for_one_stay_apart(run: Run) -> None:
    names = ["drop-all", "drop_all", "drop_all_2"]
    server = FakeServer("db", tools=[FakeTool(lambda name=name: f"called {name}", name=name) for name in names])

    with MCPClientManager({"db": server}) as manager:
        manager.require("db")
        tools = crewai_tools(manager)
        shown = {}
        for tool in tools:
            run(tools, (tool.name, {}))
            shown[tool.name] = run.shown

    assert list(shown) == ["mcp_db_drop-all", "mcp_db_drop_all_3", "mcp_db_drop_all_2"]
    for name, text in zip(names, shown.values(), strict=True):
        assert text.rstrip().partition("called ")[2].splitlines()[0] == name


def test_a_tool_is_called_without_an_agent(manager: MCPClientManager) -> None:
    tool = tool_named("mcp_ledger_add", manager)

    assert tool.run(a=1, b=2) == '{"sum": 3}'
    assert asyncio.run(tool.arun(a=1, b=2)) == '{"sum": 3}'


def test_crews_can_be_copied_and_tools_be_written_down(manager: MCPClientManager) -> None:
    tools = crewai_tools(manager)
    agent = Agent(role="clerk", goal="help", backstory="none", llm=_model(), tools=tools)
    task = Task(description="go on", expected_output="an answer", agent=agent)

    outputs = Crew(agents=[agent], tasks=[task]).kickoff_for_each(inputs=[{}, {}])

    assert [output.raw for output in outputs] == ["done", "done"]
    assert [json.loads(tool.model_dump_json())["name"] for tool in tools] == [tool.name for tool in tools]


def test_pictures_are_named(manager: MCPClientManager) -> None:
    assert "[image, image/png, " in tool_named("mcp_ledger_picture", manager).run()


def test_an_agent_has_the_tools_that_the_manager_offers_now(manager: MCPClientManager) -> None:
    class Own(BaseTool):
        name: str = "own"
        description: str = "a tool of the application"

        def _run(self) -> str:
            return ""

    agent = Agent(role="clerk", goal="help", backstory="none", tools=[Own(), *crewai_tools(manager)], llm=_model())
    task = Task(description="go on", expected_output="an answer", agent=agent)
    manager.remove_server("ledger")

    refresh(agent.tools, AsyncMCPClientManager.over(manager))

    assert [tool.name for tool in agent.tools] == ["own"]
    assert [tool.name for tool in task.tools] == ["own"]


def _model() -> ScriptedModel:
    return ScriptedModel(model="scripted", steps=[], native=True)
