"""What a run leaves: its calls in order, its tokens, its answer as text."""

from __future__ import annotations

import dataclasses

import pytest

from gaia.agents.base.agent_result import AgentResult, Step, ToolCall, Usage


def call(identifier: str) -> ToolCall:
    return ToolCall(identifier, "t", {}, "success", "done", 0.5)


def result(*steps: Step) -> AgentResult:
    return AgentResult("The answer.", steps, Usage(), "answer")


def test_tokens_are_added_up_by_kind() -> None:
    usage = sum([Usage(1, 20), Usage(3, 40)], Usage())
    assert usage == Usage(4, 60)
    assert usage.total_tokens == 64


def test_the_calls_of_all_steps_are_listed_in_order() -> None:
    steps = (Step("", (call("a"), call("b")), Usage(), 1.0), Step("", (), Usage(), 1.0))
    assert [one.id for one in result(*steps, Step("", (call("c"),), Usage(), 1.0)).tool_calls] == ["a", "b", "c"]
    assert result().tool_calls == ()


def test_as_text_it_is_the_answer() -> None:
    assert f"{result()}" == "The answer."


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        result().answer = "another"  # type: ignore[misc]
