"""The OpenAI Agents SDK's own loop, with its scripted model, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import AdapterContract, Begin, Play, Told
from tests.servers.ledger_server import DOCUMENT, PIXEL

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed: pip install openai-agents")

from agents import Agent, RunConfig, RunContextWrapper, Runner, RunResult, Tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext

from gaia.adapters.openai_agents import MCPManagerAgent, function_tools
from gaia.adapters.selection import Manager, ToolSelection

Json = dict[str, Any]
Step = tuple[str, Json | str]

ADD: Step = ("mcp_ledger_add", {"a": 1, "b": 1})

# Sends nothing to OpenAI.
QUIET = RunConfig(tracing_disabled=True)

numbers = itertools.count()


def call(name: str, arguments: Json | str) -> Any:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return function_call(name, text, call_id=f"call_{next(numbers)}")


def scripted(*steps: Step | list[Step] | Callable[[], object]) -> ScriptedModel:
    """Makes the calls of `steps`, those of a list in one turn, and then says ``done``. Functions run between them."""
    turns: list[Any] = []
    before: list[Callable[[], object]] = []
    for step in [*steps, None]:
        if callable(step):
            before.append(step)
            continue
        calls = [] if step is None else step if isinstance(step, list) else [step]
        output = [call(*one) for one in calls] or [assistant_message("done")]
        turns.append(ModelStep.respond(_after(before, output)))
        before = []
    return ScriptedModel(turns)


def _after(functions: list[Callable[[], object]], output: Any) -> Callable[[Any], Any]:
    def respond(_: Any) -> Any:
        for function in functions:
            function()
        return output

    return respond


def outputs_of(result: RunResult) -> list[Any]:
    """What the model was told of its calls."""
    assert result.final_output == "done"
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def agent_of(manager: Manager, *steps: Step | list[Step] | Callable[[], object], **selection: Any) -> Agent[None]:
    return Agent(name="agent", model=scripted(*steps), tools=list[Tool](function_tools(manager, **selection)))


def run(manager: Manager, *steps: Step | list[Step] | Callable[[], object], **selection: Any) -> Any:
    agent = agent_of(manager, *steps, **selection)

    async def main() -> Any:
        outputs = outputs_of(await Runner.run(agent, "go", run_config=QUIET))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return outputs

    return asyncio.run(main())


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self) -> Play:
        return lambda manager, *steps, **selection: [Told(output) for output in run(manager, *steps, **selection)]

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, *steps: Runner.run(agent_of(manager, *steps), "go", run_config=QUIET)

    @pytest.fixture
    def answer(self) -> Play:
        async def main(approved: bool, agent: Agent[None]) -> list[Told]:
            interrupted = await Runner.run(agent, "go", run_config=QUIET)
            state = interrupted.to_state()
            (question,) = interrupted.interruptions
            state.approve(question) if approved else state.reject(question)
            return [Told(output) for output in outputs_of(await Runner.run(agent, state, run_config=QUIET))]

        return lambda manager, approved, *steps, **selection: asyncio.run(
            main(approved, agent_of(manager, *steps, **selection))
        )


def test_calls_of_one_turn_run_side_by_side_and_fail_alone(
    manager: MCPClientManager, ledger: Ledger, killer: Killer
) -> None:
    texts = ["lost 0", "lost 1", "lost 2"]
    with killer.during(*texts):
        outputs = run(manager, [("mcp_ledger_hold", {"text": text}) for text in texts], ADD)

    assert ["Do not repeat it" in output for output in outputs] == [True, True, True, False]
    assert sorted(ledger.lines) == texts


def test_arguments_that_cannot_be_read_are_not_sent(manager: MCPClientManager, ledger: Ledger) -> None:
    broken, list_of_texts = run(manager, ("mcp_ledger_record", '{"text": "a'), ("mcp_ledger_record", '["a"]'))

    assert "not valid JSON" in broken
    assert "must be a JSON object" in list_of_texts
    assert ledger.lines == []


def test_images_are_shown_and_the_rest_is_named(manager: MCPClientManager) -> None:
    model = scripted(("mcp_ledger_picture", {}))
    agent = Agent(name="agent", model=model, tools=list[Tool](function_tools(manager)))

    asyncio.run(Runner.run(agent, "go", run_config=QUIET))

    assert model.last_call is not None
    (output,) = [item["output"] for item in model.last_call.input if item.get("type") == "function_call_output"]
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    assert output[:3] == [
        {"type": "input_text", "text": "one pixel"},
        image,
        {"type": "input_text", "text": "[audio, audio/wav, 5 bytes]"},
    ]
    assert output[4] == image
    assert output[-1]["file_data"] == f"data:application/pdf;base64,{DOCUMENT}"


def test_the_tools_are_as_the_servers_describe_them(manager: MCPClientManager) -> None:
    tools = {tool.name: tool for tool in function_tools(manager)}

    add = tools["mcp_ledger_add"]
    assert (add.description, add.strict_json_schema) == ("Add two numbers.", False)
    assert add.params_json_schema["properties"] == {"a": {"type": "number"}, "b": {"type": "number"}}
    assert tools["mcp_ledger_figures"].params_json_schema["properties"] == {}


def test_runs_of_one_agent_may_overlap_while_its_tools_change(
    manager: MCPClientManager, until_grown: Callable[[], None]
) -> None:
    """The SDK refuses this for `tools` that are replaced."""

    async def main() -> None:
        agent = MCPManagerAgent[None](name="agent", mcp_manager=manager)
        began = asyncio.Event()

        async def wait_for_the_tool(_: Any) -> Any:
            began.set()
            await asyncio.to_thread(until_grown)
            return [call(*ADD)]

        other = ScriptedModel(
            [ModelStep.respond(wait_for_the_tool), [call("mcp_ledger_grown_1", {})], [assistant_message("done")]]
        )
        waiting = asyncio.create_task(run_with(agent, other))
        await began.wait()
        await run_with(agent, scripted(("mcp_ledger_grow", {})))
        assert await waiting == ['{"sum": 2}', "grown_1"]

    async def run_with(agent: MCPManagerAgent[None], model: ScriptedModel) -> list[Any]:
        return outputs_of(await Runner.run(agent, "go", run_config=RunConfig(model=model, tracing_disabled=True)))

    asyncio.run(main())


def test_an_agent_of_a_manager_can_be_cloned_and_has_its_own_tools_too(manager: MCPClientManager) -> None:
    model = scripted(ADD)
    (own,) = [tool for tool in function_tools(manager) if tool.name == "mcp_ledger_echo"]
    own.name = "own"
    agent = MCPManagerAgent[None](name="agent", tools=[own], mcp_manager=manager).clone(name="clone", model=model)

    assert outputs_of(asyncio.run(Runner.run(agent, "go", run_config=QUIET))) == ['{"sum": 2}']

    assert model.first_call is not None
    assert {"own", "mcp_ledger_add"} <= {tool.name for tool in model.first_call.tools}


def test_an_agent_may_be_given_another_manager(manager: MCPClientManager) -> None:
    agent = MCPManagerAgent[None](name="agent", mcp_manager=ToolSelection(manager, tools=["add"]))

    def names() -> list[str]:
        return [tool.name for tool in asyncio.run(agent.get_mcp_tools(RunContextWrapper(None)))]

    assert names() == ["mcp_ledger_add"]
    agent.mcp_manager = ToolSelection(manager, tools=["echo"])
    assert names() == ["mcp_ledger_echo"]
    agent.mcp_manager = None
    assert names() == []


def test_code_that_calls_a_tool_without_asking_has_no_approval(manager: MCPClientManager, ledger: Ledger) -> None:
    (record,) = function_tools(manager, tools=["record"], approve=["record"])
    context = ToolContext(None, tool_name=record.name, tool_call_id="call", tool_arguments="{}")

    output = asyncio.run(record.on_invoke_tool(context, '{"text": "next"}'))

    assert "needs a person's approval" in output
    assert ledger.lines == []


def test_runs_of_synchronous_code_work_with_the_same_tools(manager: MCPClientManager) -> None:
    tools = list[Tool](function_tools(manager))
    # `run_sync` keeps the loop of its thread for later runs.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        for text in ("a", "b"):
            agent = Agent(name="agent", model=scripted(("mcp_ledger_record", {"text": text})), tools=tools)
            assert outputs_of(Runner.run_sync(agent, "go", run_config=QUIET)) == [f"recorded {text}, 1 times"]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_instructions_of_the_servers_follow_those_of_the_agent(demo_of: Callable[..., Any]) -> None:
    model = scripted()
    with demo_of("Ask before you delete.") as manager:
        agent = MCPManagerAgent[None](
            name="agent", model=model, instructions="Help.", mcp_manager=manager, mcp_instructions=True
        )
        asyncio.run(Runner.run(agent, "go", run_config=QUIET))

    assert model.first_call is not None
    assert model.first_call.system_instructions.splitlines()[0] == "Help."
    assert model.first_call.system_instructions.endswith("Ask before you delete.")
