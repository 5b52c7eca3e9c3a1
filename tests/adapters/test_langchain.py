"""LangChain's own agent, with a model that plays a script, uses a real server that is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia.adapters.selection import Manager
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer, FakeTool
from tests.adapters.conftest import Killer, Ledger
from tests.adapters.contract import AdapterContract, Begin, Json, Play, Step, Told
from tests.servers.ledger_server import DOCUMENT, PIXEL
from tests.waiting import wait_until

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy

from gaia.adapters.langchain import langchain_tools
from tests.adapters.scripted_langchain import STATE, Run, ScriptedModel, run_async, run_sync, scripted

THREAD: Any = {"configurable": {"thread_id": "1"}}


@pytest.fixture(params=["invoke", "ainvoke"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an agent to its end, synchronously or on an event loop; returns what it was told of its calls."""
    return run_sync if request.param == "invoke" else run_async


class TestContract(AdapterContract):
    @pytest.fixture
    def play(self, run: Run) -> Play:
        def play(manager: Manager, *steps: Step, **selection: Any) -> list[Told]:
            told = run(create_agent(scripted(*steps), langchain_tools(manager, **selection)))
            return [Told(message.text, message.status == "error") for message in told]

        return play

    @pytest.fixture
    def begin(self) -> Begin:
        return lambda manager, *steps: create_agent(scripted(*steps), langchain_tools(manager)).ainvoke(STATE)

    @pytest.fixture(params=["invoke", "ainvoke"])
    def answer(self, request: pytest.FixtureRequest) -> Play:
        """Answers in the form of LangChain's own middleware."""

        def answer(manager: Manager, approved: bool, *steps: Step, **selection: Any) -> list[Told]:
            tools = langchain_tools(manager, **selection)
            agent = create_agent(scripted(*steps), tools, checkpointer=InMemorySaver())
            go_on = agent.invoke if request.param == "invoke" else lambda *given: asyncio.run(agent.ainvoke(*given))
            (question,) = go_on(STATE, THREAD)["__interrupt__"]
            assert question.value["action_requests"][0]["name"] == "mcp_ledger_record"
            decisions = [{"type": "approve" if approved else "reject"}]
            final = go_on(Command(resume={question.id: {"decisions": decisions}}), THREAD)
            return [Told(message.text) for message in final["messages"] if message.type == "tool"]

        return answer


def test_a_call_that_failed_is_not_repeated_by_a_middleware(
    manager: MCPClientManager, run: Run, killer: Killer, ledger: Ledger
) -> None:
    calls = [("mcp_ledger_hold", {"text": "held"}), ("mcp_ledger_record", {"text": "next"})]
    agent = create_agent(scripted(*calls), langchain_tools(manager), middleware=[ToolRetryMiddleware(max_retries=3)])

    with killer.during("held"):
        held, after = run(agent)

    assert held.status == "error"
    assert "Do not repeat it" in held.text
    assert (held.artifact["error_type"], held.artifact["delivery"]) == ("server_crashed", "unknown")
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


def test_results_keep_images_files_and_structured_content(manager: MCPClientManager, run: Run) -> None:
    calls = [("mcp_ledger_picture", {}), ("mcp_ledger_figures", {})]

    picture, figures = run(create_agent(scripted(*calls), langchain_tools(manager)))

    image = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
    text, first, audio, embedded, second, link, document = picture.content
    assert (first, second) == (image, image)
    assert [text["text"], audio["text"], embedded["text"]] == ["one pixel", "[audio, audio/wav, 5 bytes]", "embedded"]
    assert document == {"type": "file", "base64": DOCUMENT, "mime_type": "application/pdf"}
    assert "demo://greeting" in link["text"]
    assert len(picture.artifact["content"]) == 7
    assert figures.artifact["structuredContent"] == {"height": 2}
    assert figures.content == '{"height": 2}'


def test_a_run_that_goes_on_from_a_checkpoint_does_not_repeat_a_call_that_was_interrupted(
    manager: MCPClientManager, ledger: Ledger
) -> None:
    hold = ("mcp_ledger_hold", {"text": "held"})
    agent = create_agent(scripted(hold, hold), langchain_tools(manager), checkpointer=InMemorySaver())

    async def run_until_called(state: Any, times: int) -> None:
        run = asyncio.ensure_future(agent.ainvoke(state, THREAD))
        assert await asyncio.to_thread(wait_until, lambda: len(ledger.lines) == times)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(run_until_called(STATE, 1))
    # The model is told, and asks for the call once more, which is made.
    asyncio.run(run_until_called(None, 2))

    (told,) = [message for message in agent.get_state(THREAD).values["messages"] if message.type == "tool"]
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


@pytest.mark.parametrize("named", ["1", None], ids=["named", "not named"])
def test_the_answer_for_one_of_several_calls_of_a_task_has_to_name_it(
    manager: MCPClientManager, ledger: Ledger, named: str | None
) -> None:
    """Calls of one task ask in any order, and LangGraph gives the first answer to the one that asks first."""
    calls = [ToolCall(name="mcp_ledger_record", args={"text": one}, id=one, type="tool_call") for one in ("1", "2")]
    graph = StateGraph(MessagesState).add_node("tools", ToolNode(langchain_tools(manager, approve=["record"])))
    compiled = graph.set_entry_point("tools").compile(checkpointer=InMemorySaver())

    compiled.invoke({"messages": [AIMessage("", tool_calls=calls)]}, THREAD)
    decision = {"type": "approve"} | ({} if named is None else {"tool_call_id": named})
    for _ in calls:
        compiled.invoke(Command(resume={"decisions": [decision]}), THREAD)

    assert set(ledger.lines) <= {named}


def test_progress_is_in_the_custom_stream(manager: MCPClientManager) -> None:
    agent = create_agent(scripted(("mcp_ledger_steps", {})), langchain_tools(manager))

    async def streamed() -> list[Any]:
        return [part async for part in agent.astream(STATE, stream_mode="custom")]

    reports = list(agent.stream(STATE, stream_mode="custom"))
    agent = create_agent(scripted(("mcp_ledger_steps", {})), langchain_tools(manager))
    reports = asyncio.run(streamed())

    assert [(one["tool"], one["tool_call_id"], one["progress"]) for one in reports] == [
        ("mcp_ledger_steps", "call_0", 1),
        ("mcp_ledger_steps", "call_0", 2),
    ]


def test_a_recursive_schema_keeps_three_levels() -> None:
    node = {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    server = FakeServer("deep", tools=[FakeTool(lambda node: node, name="echo", inputSchema=schema)])

    with MCPClientManager({"deep": server}) as manager:
        manager.require("deep")
        (tool,) = langchain_tools(manager)

    shown = convert_to_openai_tool(tool)["function"]["parameters"]["properties"]["node"]
    assert shown["properties"]["next"]["properties"]["next"]["properties"]["value"] == {"type": "integer"}


@pytest.mark.parametrize("reference", ["https://other.example/schema.json", "#/$defs/Missing", 5])
def test_a_reference_that_points_nowhere_is_left_out(reference: object) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}}
    server = FakeServer("odd", tools=[FakeTool(lambda a: a, name="echo", inputSchema=schema)])

    with MCPClientManager({"odd": server}) as manager:
        manager.require("odd")
        (tool,) = langchain_tools(manager)

        assert "a" in convert_to_openai_tool(tool)["function"]["parameters"]["properties"]
