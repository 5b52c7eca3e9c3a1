"""LangChain's own agent, with a model that plays a script, uses a real server that is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia.adapters.calls import Manager
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer, FakeTool
from tests.adapters.conftest import Killer, Ledger, assert_idle
from tests.adapters.contract import AdapterContract, Json, Play, Step, Told
from tests.servers.ledger_server import PIXEL
from tests.waiting import wait_until

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy

from gaia.adapters.langchain import langchain_tools
from tests.adapters.scripted_langchain import STATE, Run, ScriptedModel, run_async, run_sync, scripted


@pytest.fixture(params=["invoke", "ainvoke"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an agent to its end, synchronously or on an event loop; returns what it was told of its calls."""
    return run_sync if request.param == "invoke" else run_async


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self, run: Run) -> Play:
        def play(manager: Manager, *steps: Step) -> list[Told]:
            told = run(create_agent(scripted(*steps), langchain_tools(manager)))
            return [Told(message.text, message.status == "error") for message in told]

        return play


def test_a_call_that_failed_is_not_repeated_by_a_middleware(
    manager: MCPClientManager, run: Run, killer: Killer, ledger: Ledger
) -> None:
    calls = [("mcp_ledger_hold", {"text": "held"}), ("mcp_ledger_record", {"text": "next"})]
    agent = create_agent(scripted(*calls), langchain_tools(manager), middleware=[ToolRetryMiddleware(max_retries=3)])

    with killer.during("held"):
        held, after = run(agent)

    assert held.status == "error"
    assert "Do not repeat it" in held.text
    assert after.status == "success"
    assert ledger.lines == ["held", "next"]


def test_a_graph_of_langgraph_calls_the_tool(manager: MCPClientManager, run: Run) -> None:
    model = scripted(("mcp_ledger_add", {"a": 1, "b": 2}))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(langchain_tools(manager)))
    graph.set_entry_point("model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")

    (message,) = run(graph.compile())

    assert message.content == '{"sum": 3}'


def test_the_calls_of_one_turn_run_together(manager: MCPClientManager, run: Run, ledger: Ledger) -> None:
    calls = [ToolCall(name="mcp_ledger_record", args={"text": f"call {n}"}, id=f"call_{n}") for n in range(20)]
    model = ScriptedModel(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))

    messages = run(create_agent(model, langchain_tools(manager)))

    assert [message.status for message in messages] == ["success"] * 20
    assert sorted(ledger.lines) == sorted(f"call {n}" for n in range(20))


def test_the_model_is_told_of_errors(manager: MCPClientManager, run: Run) -> None:
    calls = [("mcp_ledger_fail", {"message": "no such note"}), ("mcp_ledger_add", {"a": 1})]

    failed, missing = run(create_agent(scripted(*calls), langchain_tools(manager)))

    assert [failed.status, missing.status] == ["error", "error"]
    assert failed.text == "Error: no such note"
    assert "missing argument 'b'" in missing.text
    assert "Do not repeat" not in failed.text + missing.text


def test_the_model_is_told_that_the_server_is_gone(manager: MCPClientManager, run: Run) -> None:
    agent = create_agent(scripted(("mcp_ledger_add", {"a": 1, "b": 2})), langchain_tools(manager))
    manager.stop_server("ledger")

    (message,) = run(agent)

    assert message.status == "error"
    assert "had no effect" in message.text


def test_results_keep_images_and_structured_content(manager: MCPClientManager, run: Run) -> None:
    calls = [("mcp_ledger_picture", {}), ("mcp_ledger_figures", {})]

    picture, figures = run(create_agent(scripted(*calls), langchain_tools(manager)))

    image = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    text, first, audio, embedded, second, link = picture.content
    assert (first, second) == (image, image)
    assert [text["text"], audio["text"], embedded["text"]] == ["one pixel", "[audio, audio/wav, 5 bytes]", "embedded"]
    assert "demo://greeting" in link["text"]
    assert len(picture.artifact["content"]) == 6
    assert figures.artifact["structuredContent"] == {"height": 2}
    assert figures.content == '{"height": 2}'


def test_a_cancelled_run_cancels_its_call(manager: MCPClientManager, ledger: Ledger) -> None:
    agent = create_agent(scripted(("mcp_ledger_hold", {"text": "held"})), langchain_tools(manager))
    asyncio.run(ledger.cancelled_with("held", agent.ainvoke({"messages": [("user", "go on")]})))
    assert_idle(manager)


def test_a_run_that_goes_on_from_a_checkpoint_does_not_repeat_a_call_that_was_interrupted(
    manager: MCPClientManager, ledger: Ledger
) -> None:
    hold = ("mcp_ledger_hold", {"text": "held"})
    agent = create_agent(scripted(hold, hold), langchain_tools(manager), checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}

    async def run_until_called(state: Any, times: int) -> None:
        run = asyncio.ensure_future(agent.ainvoke(state, thread))
        assert await asyncio.to_thread(wait_until, lambda: len(ledger.lines) == times)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(run_until_called(STATE, 1))
    # The model is told, and asks for the call once more, which is made.
    asyncio.run(run_until_called(None, 2))

    (told,) = [message for message in agent.get_state(thread).values["messages"] if message.type == "tool"]
    assert "Do not repeat it" in told.content
    assert ledger.lines == ["held", "held"]


def test_a_node_that_is_retried_does_not_repeat_a_call_that_may_have_taken_effect(
    manager: MCPClientManager, killer: Killer, ledger: Ledger, run: Run
) -> None:
    (hold,) = [tool for tool in langchain_tools(manager) if tool.name == "mcp_ledger_hold"]
    call = ToolCall(name=hold.name, args={"text": "held"}, id="call", type="tool_call")
    told: list[Any] = []

    def node(_: MessagesState) -> Json:
        told.append(hold.invoke(call))
        if len(told) == 1:
            raise ConnectionError("of something else")
        return {"messages": [told[-1], AIMessage("done")]}

    graph = StateGraph(MessagesState).add_node("node", node, retry_policy=RetryPolicy(initial_interval=0))
    graph.set_entry_point("node")
    with killer.during("held"):
        run(graph.compile())

    assert [message.content for message in told] == [told[0].content] * 2
    assert ledger.lines == ["held"]


@pytest.mark.parametrize("reference", ["https://other.example/schema.json", "#/$defs/Missing", 5])
def test_a_reference_that_points_nowhere_is_left_out(reference: object) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}}
    server = FakeServer("odd", tools=[FakeTool(lambda a: a, name="echo", inputSchema=schema)])

    with MCPClientManager({"odd": server}) as manager:
        manager.require("odd")
        (tool,) = langchain_tools(manager)

        assert "a" in convert_to_openai_tool(tool)["function"]["parameters"]["properties"]
