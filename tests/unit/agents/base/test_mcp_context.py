"""What an MCP agent can do outside of any request, and what its questions are numbered by."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from gaia.agents.base import MCPAgent
from gaia.agents.base.mcp_context import (
    InputRequired,
    MCPCapabilityMissing,
    MCPContext,
    MCPRequestCancelled,
    ServableAgent,
)
from gaia.mcp.mcp_bridge import MCPBridge
from tests.serving.agents import QuietAgent


@pytest.fixture
def agent() -> QuietAgent:
    return QuietAgent(silent_mode=True)


def test_progress_and_log_messages_go_nowhere(agent: QuietAgent) -> None:
    context = agent.mcp_context
    context.report_progress(1, 2, "half")
    context.log("info", "hello")
    context.on_cancel(lambda: None)
    context.raise_if_cancelled()
    assert not context.cancelled


def test_no_client_can_be_asked(agent: QuietAgent) -> None:
    context = agent.mcp_context
    assert not context.supports("elicitation")
    for ask, capability in (
        (lambda: context.elicit("Name?", {"type": "object"}), "elicitation"),
        (lambda: context.elicit_url("Sign in", "https://example.com"), "elicitation"),
        (lambda: context.sample([], 10), "sampling"),
        (context.list_roots, "roots"),
    ):
        with pytest.raises(MCPCapabilityMissing) as missing:
            ask()
        assert missing.value.capability == capability
    assert context.ask({}) == {}


def test_a_question_is_not_kept_by_an_agent_that_catches_exceptions() -> None:
    assert not issubclass(InputRequired, Exception)


class AskingContext(MCPContext):
    """Keeps the keys under which it is asked, and declines everything."""

    request_id = 7

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, Any] = {}

    def ask(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        self.asked |= requests
        return {key: {"action": "decline"} for key in requests}


def test_questions_of_a_kind_are_numbered_in_the_order_of_asking() -> None:
    """An agent that runs again from its beginning finds its answers by these keys."""
    context = AskingContext()
    context.elicit("First?", {})
    context.sample([], 10)
    context.elicit("Named?", {}, key="mine")
    context.elicit_url("Second?", "https://example.com")
    context.list_roots()
    assert list(context.asked) == ["elicitation-1", "sampling-1", "mine", "elicitation-2", "roots-1"]
    assert context.asked["elicitation-2"]["params"]["elicitationId"] == "7-elicitation-2"


def test_options_of_a_sampling_request_keep_their_names() -> None:
    context = AskingContext()
    context.sample([], 10, temperature=0, stopSequences=["."])
    assert context.asked["sampling-1"]["params"] == {
        "messages": [],
        "maxTokens": 10,
        "temperature": 0,
        "stopSequences": ["."],
    }


def test_roots_that_a_client_leaves_out_are_none() -> None:
    assert AskingContext().list_roots() == []


def test_a_cancelled_request_is_told_by_an_exception() -> None:
    class Cancelled(MCPContext):
        cancelled = True

    with pytest.raises(MCPRequestCancelled):
        Cancelled().raise_if_cancelled()


@pytest.mark.parametrize("cls", [MCPAgent, MCPBridge])
@pytest.mark.parametrize("name", [name for name in vars(ServableAgent) if name.endswith("mcp") or "_mcp_" in name])
def test_what_a_server_serves_has_each_method_with_its_parameters(name: str, cls: type) -> None:
    assert inspect.signature(getattr(cls, name)) == inspect.signature(getattr(ServableAgent, name))
