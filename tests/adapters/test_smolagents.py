"""smolagents' own agents, with a model that plays a script, use a real server that is killed."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager, MCPError, MCPTool, ToolResult
from gaia.mcp.aio import AsyncMCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import AdapterContract, Play, Told
from tests.servers.ledger_server import PIXEL

pytest.importorskip("smolagents", reason="smolagents is not installed: pip install smolagents")

from PIL.Image import Image
from smolagents import ChatMessage, CodeAgent, LogLevel, Model, ToolCallingAgent
from smolagents.models import (
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_tool_json_schema,
)

from gaia.adapters.smolagents import MCPServerTool, refresh, smolagents_tools

Json = dict[str, Any]
Calls = list[tuple[str, Json]]


class ScriptedModel(Model):
    """Makes the calls of its script, some a turn, or writes the code of its script."""

    def __init__(self, *steps: Calls | str | Callable[[], object]) -> None:
        """`steps` are calls made at once, code, and functions that are run between them."""
        super().__init__()
        self.steps = list(steps)
        self.shown = ""
        """What the model was shown last."""

    def generate(self, messages: Any, *_: Any, tools_to_call_from: Any = None, **__: Any) -> ChatMessage:
        self.shown = str(messages[-1].content)
        for tool in tools_to_call_from or ():
            get_tool_json_schema(tool)
        while callable(step := self.steps.pop(0) if self.steps else [("final_answer", {"answer": "done"})]):
            step()
        if isinstance(step, str):
            return ChatMessage(MessageRole.ASSISTANT, f"<code>\n{step}\n</code>")
        calls = [
            ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), f"call_{number}", "function")
            for number, (name, arguments) in enumerate(step)
        ]
        return ChatMessage(MessageRole.ASSISTANT, "", tool_calls=calls)


def run(manager: Manager, *steps: Calls | str | Callable[[], object], **selection: Any) -> list[str]:
    """Run an agent to its end; return what it observed at each of its steps."""
    agent = ToolCallingAgent(
        smolagents_tools(manager, **selection), ScriptedModel(*steps), verbosity_level=LogLevel.OFF
    )
    assert agent.run("go on") == "done"
    return [step.observations for step in agent.memory.steps[1:-1] if hasattr(step, "observations")]


def tool_named(name: str, manager: MCPClientManager, **settings: Any) -> MCPServerTool:
    return next(tool for tool in smolagents_tools(manager, **settings) if tool.name == name)


class TestContract(AdapterContract):
    # smolagents passes arguments by keyword to a method, where `self` is taken; see below.
    test_arguments_may_have_any_names = None  # type: ignore[assignment]

    @pytest.fixture
    def play(self) -> Play:
        def play(manager: Manager, *steps: Any, **selection: Any) -> list[Told]:
            observed = run(manager, *(step if callable(step) else [step] for step in steps), **selection)
            return [Told(text) for text in observed]

        return play


def test_the_results_of_the_calls_beside_one_that_fails_are_kept(manager: MCPClientManager, killer: Killer) -> None:
    with killer.during("held"):
        (observed,) = run(manager, [("mcp_ledger_hold", {"text": "held"}), ("mcp_ledger_add", {"a": 1, "b": 2})])

    assert "Do not repeat it" in observed
    assert "{'sum': 3}" in observed


def test_code_of_an_agent_calls_tools_and_is_ended_by_an_error(
    manager: MCPClientManager, killer: Killer, ledger: Ledger
) -> None:
    held = "mcp_ledger_hold('held')\nmcp_ledger_record('never')"
    model = ScriptedModel(held, "final_answer(mcp_ledger_add(19, b=2)['sum'])")
    agent = CodeAgent(smolagents_tools(manager, raise_errors=True), model, verbosity_level=LogLevel.OFF)

    with killer.during("held"):
        assert agent.run("go on") == 21

    assert "Do not repeat it" in model.shown
    assert ledger.lines == ["held"]


def test_an_error_says_what_was_delivered(manager: MCPClientManager) -> None:
    with pytest.raises(MCPError, match="Error: this tool always fails") as raised:
        tool_named("mcp_ledger_fail", manager, raise_errors=True)()

    assert raised.value.delivery == "unknown"


def test_an_argument_that_was_left_out_as_null_is_not_sent(manager: MCPClientManager) -> None:
    assert run(manager, [("mcp_ledger_fail", {"message": None})]) == ["Error: this tool always fails"]


def test_names_of_arguments_that_python_and_smolagents_use_are_no_obstacle(manager: MCPClientManager) -> None:
    names = ("config", "run_manager", "context", "runtime", "name", "self")

    answered = tool_named("mcp_ledger_configure", manager).forward(**dict.fromkeys(names, "x"))

    assert answered == '{"config": "x", "run_manager": "x", "context": "x", "runtime": "x", "name": "x", "self": "x"}'


class OneAnswer:
    """A manager with one tool, whose answer is given."""

    def __init__(self, tool: MCPTool, answer: Json) -> None:
        self.tool, self.answer = tool, ToolResult.from_server(answer)

    def list_tools(self) -> list[MCPTool]:
        return [self.tool]

    def call_tool(self, *_: object, **__: object) -> ToolResult:
        return self.answer


def answer_with(*content: Json) -> Any:
    """What a tool returns for this content."""
    tool = MCPTool("show", "", {}, server="x-y", namespaced_name="mcp_x-y_show")
    (made,) = smolagents_tools(OneAnswer(tool, {"content": list(content)}))  # type: ignore[arg-type]  # all that is used of it
    assert made.name == "mcp_x_y_show"
    return made()


def test_an_image_is_an_image() -> None:
    image = answer_with({"type": "image", "data": PIXEL, "mimeType": "image/png"})

    assert isinstance(image, Image)
    assert image.size == (1, 1)


def test_an_image_that_cannot_be_read_is_named() -> None:
    unreadable = base64.b64encode(b"no picture").decode()

    assert answer_with({"type": "image", "data": unreadable, "mimeType": "image/png"}) == "[image, image/png, 10 bytes]"


def test_names_of_tools_become_identifiers_that_differ() -> None:
    names = ("mcp_x_y_z", "mcp_x-y_z", "mcp_x_y-z")

    class Names(OneAnswer):
        def list_tools(self) -> list[MCPTool]:
            return [MCPTool("z", "", {}, namespaced_name=name) for name in names]

    made = smolagents_tools(Names(MCPTool("z", "", {}), {}))  # type: ignore[arg-type]  # all that is used of it

    assert [tool.name for tool in made] == ["mcp_x_y_z", "mcp_x_y_z_", "mcp_x_y_z__"]


def test_several_kinds_of_content_are_a_text(manager: MCPClientManager) -> None:
    (observed,) = run(manager, [("mcp_ledger_picture", {})])

    assert observed.startswith("one pixel\n[image, image/png, ")
    assert "embedded" in observed


def test_the_tools_are_those_that_the_manager_offers_now(manager: MCPClientManager) -> None:
    agent = ToolCallingAgent(smolagents_tools(manager), ScriptedModel(), verbosity_level=LogLevel.OFF)
    manager.remove_server("ledger")

    refresh(agent.tools, AsyncMCPClientManager.over(manager))

    assert list(agent.tools) == ["final_answer"]
