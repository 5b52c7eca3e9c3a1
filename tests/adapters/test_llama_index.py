"""LlamaIndex's own agent, with a model that plays a script, uses a real server that is killed."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager
from gaia.mcp.aio import AsyncMCPClientManager
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import AdapterContract, Begin, Play, Told
from tests.servers.ledger_server import PIXEL
from tests.waiting import PATIENCE

pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed: pip install llama-index-core")

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import AudioBlock, ChatMessage, DocumentBlock, ImageBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.tools.calling import acall_tool, call_tool

from gaia.adapters.llama_index import MCPToolRetriever, llama_index_tools

# LlamaIndex uses names of pydantic that will go away.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Json = dict[str, Any]
Step = list[tuple[str, Json]] | Callable[[], object]


def scripted(*steps: Step) -> MockFunctionCallingLLM:
    """A model that makes calls, those of a list at once, and runs functions between them."""
    script = list(steps)

    def respond(*_: object, **__: object) -> ChatMessage:
        while script:
            step = script.pop(0)
            if not callable(step):
                blocks = [
                    ToolCallBlock(tool_call_id=str(number), tool_name=name, tool_kwargs=arguments)
                    for number, (name, arguments) in enumerate(step)
                ]
                return ChatMessage(role="assistant", blocks=blocks)
            step()
        return ChatMessage(role="assistant", content="done")

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


def run(manager: Manager, *steps: Step, **selection: Any) -> list[ToolOutput]:
    """Run an agent to its end; return what it was told of its calls."""

    async def run_agent() -> list[ToolOutput]:
        agent = FunctionAgent(llm=scripted(*steps), tools=llama_index_tools(manager, **selection))
        handler = agent.run("go on")
        outputs = [event.tool_output async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
        assert str(await handler) == "done"
        return outputs

    return asyncio.run(run_agent())


def tool_named(name: str, manager: MCPClientManager) -> FunctionTool:
    return next(tool for tool in llama_index_tools(manager) if tool.metadata.name == name)


class TestContract(AdapterContract):
    # LlamaIndex passes arguments by keyword to a method, where `self` is taken.
    test_arguments_may_have_any_names = None  # type: ignore[assignment]

    @pytest.fixture
    def play(self) -> Play:
        def play(manager: Manager, *steps: Any, **selection: Any) -> list[Told]:
            outputs = run(manager, *(step if callable(step) else [step] for step in steps), **selection)
            return [Told(output.content, output.is_error) for output in outputs]

        return play

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, step: tool_named(step[0], manager).acall(**step[1])


@pytest.mark.parametrize("call", [call_tool, lambda *call: asyncio.run(acall_tool(*call))], ids=["sync", "async"])
def test_a_failed_call_with_one_argument_is_made_once(
    manager: MCPClientManager, killer: Killer, ledger: Ledger, call: Callable[..., ToolOutput]
) -> None:
    with killer.during("held"):
        output = call(tool_named("mcp_ledger_hold", manager), {"text": "held"})

    assert "Do not repeat it" in output.content
    assert ledger.lines == ["held"]


def test_a_tool_is_called_without_an_agent(manager: MCPClientManager) -> None:
    async def awaited() -> ToolOutput:
        return await tool_named("mcp_ledger_add", manager).acall(a=1, b=2)

    output = tool_named("mcp_ledger_add", manager)(a=1, b=2)
    assert (output.content, output.raw_output.structured) == ('{"sum": 3}', {"sum": 3})
    assert asyncio.run(awaited()).content == '{"sum": 3}'


def test_a_tool_can_be_called_on_several_loops(manager: MCPClientManager) -> None:
    tool = tool_named("mcp_ledger_echo", manager)
    answers: list[str] = []

    def call(text: str) -> None:
        answers.append(asyncio.run(tool.acall(text=text)).content)

    threads = [threading.Thread(target=call, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert sorted(answers) == ["one", "two"]


def test_images_and_files_are_blocks(manager: MCPClientManager) -> None:
    output = tool_named("mcp_ledger_picture", manager)()

    images = [block for block in output.blocks if isinstance(block, ImageBlock)]
    assert [image.resolve_image().read() for image in images] == [base64.b64decode(PIXEL)] * 2
    assert "one pixel" in output.content
    audio, document = [block for block in output.blocks if isinstance(block, AudioBlock | DocumentBlock)]
    assert (audio.format, audio.resolve_audio().read()) == ("wav", b"12345")
    assert document.resolve_document().read() == b"%PDF-1.7"


def test_the_model_is_told_the_schema_of_the_server(manager: MCPClientManager) -> None:
    parameters = tool_named("mcp_ledger_sleep", manager).metadata.get_parameters_dict()

    assert parameters["properties"] == {"seconds": {"type": "number", "minimum": 0, "maximum": 3600}}
    assert parameters["required"] == ["seconds"]


def test_an_agent_with_the_retriever_has_the_tools_that_the_manager_offers_now(manager: MCPClientManager) -> None:
    agent = FunctionAgent(llm=scripted(), tool_retriever=MCPToolRetriever(AsyncMCPClientManager.over(manager)))

    def names() -> list[str | None]:
        return [tool.metadata.name for tool in asyncio.run(agent.get_tools("go on"))]

    assert "mcp_ledger_add" in names()
    manager.remove_server("ledger")
    assert names() == []
