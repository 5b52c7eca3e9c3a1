"""LangChain's own agent, with a model that plays a script, uses a real server that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp import MCPClientManager
from tests.adapters.conftest import Killer, Ledger

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from gaia.adapters.langchain import langchain_tools

Json = dict[str, Any]
Run = Callable[[Any], list[ToolMessage]]


class ScriptedModel(GenericFakeChatModel):
    """Makes the calls of its script, one a turn, and answers."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def scripted(*steps: tuple[str, Json] | Callable[[], object]) -> ScriptedModel:
    """`steps` are calls, and functions that are run between them."""

    def turns() -> Iterator[AIMessage]:
        for number, step in enumerate(steps):
            if callable(step):
                step()
            else:
                yield AIMessage("", tool_calls=[ToolCall(name=step[0], args=step[1], id=f"call_{number}")])
        yield AIMessage("done")

    return ScriptedModel(messages=turns())


@pytest.fixture(params=["invoke", "ainvoke"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an agent to its end, synchronously or on an event loop; returns what it was told of its calls."""

    def run(agent: Any) -> list[ToolMessage]:
        state = {"messages": [("user", "go on")]}
        final = agent.invoke(state) if request.param == "invoke" else asyncio.run(agent.ainvoke(state))
        assert final["messages"][-1].content == "done"
        return [message for message in final["messages"] if isinstance(message, ToolMessage)]

    return run


def test_the_agent_calls_the_tool(manager: MCPClientManager, run: Run) -> None:
    agent = create_agent(scripted(("mcp_ledger_add", {"a": 19, "b": 2})), langchain_tools(manager))

    (message,) = run(agent)

    assert message.content == '{"sum": 21}'
    assert message.artifact["structuredContent"] == {"sum": 21}
    assert message.status == "success"


def test_a_server_killed_between_calls_is_back_for_the_next_one(
    manager: MCPClientManager, run: Run, killer: Killer, ledger: Ledger
) -> None:
    first, second = [("mcp_ledger_record", {"text": text}) for text in ("first", "second")]
    agent = create_agent(scripted(first, killer.kill, second), langchain_tools(manager))

    assert [message.status for message in run(agent)] == ["success", "success"]
    assert ledger.lines == ["first", "second"]


def test_a_call_in_which_the_server_is_killed_is_not_repeated_and_the_model_is_told(
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


def test_a_call_of_a_safe_tool_is_repeated_by_the_manager(
    manager: MCPClientManager, run: Run, killer: Killer, ledger: Ledger
) -> None:
    agent = create_agent(scripted(("mcp_ledger_read", {"text": "page"})), langchain_tools(manager))

    with killer.during("page"):
        (message,) = run(agent)

    assert (message.status, message.content) == ("success", "read page")
    assert ledger.lines == ["page", "page"]
