"""A run without an endpoint: a model that is a list of completions. Runs with all their parts are in `tests/agents`."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.agents.base import agent as agent_module
from gaia.agents.base.agent_result import AgentResult, Usage
from gaia.agents.base.chat import Completion, Message, RequestedCall
from gaia.agents.base.loop import Done, Run, WorkCancelled, work
from gaia.runtime.cancellation import CancelScope, current_scope
from tests.silent_agent import SilentAgent
from tests.waiting import PATIENCE

Registry = dict[str, dict[str, Any]]


class ListModel:
    """Answers with one completion after the other, and remembers what it was asked."""

    def __init__(self, *completions: Completion | BaseException) -> None:
        self._completions = list(completions)
        self.asked: list[list[Message]] = []
        self.tools: list[str] = []

    def complete(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], on_text: Callable[[str], None]
    ) -> Completion:
        self.asked.append(list(messages))
        self.tools = [tool["function"]["name"] for tool in tools]
        completion = self._completions.pop(0)
        if isinstance(completion, BaseException):
            raise completion
        on_text(completion.text)
        return completion


class Mute(SilentAgent):
    """Without tools of its own, and without a system prompt."""

    def _compose_system_prompt(self) -> str:
        return ""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry: Registry = {}
    monkeypatch.setattr(agent_module, "_TOOL_REGISTRY", registry)
    return registry


def entry(function: Callable[..., Any] | None) -> dict[str, Any]:
    return {"description": "Does it.", "parameters": {}, "function": function}


def calling(*calls: RequestedCall) -> Completion:
    return Completion("", calls, Usage(1, 1), "tool_calls")


def run(model: ListModel, *, steps: int = 5, agent: SilentAgent | None = None) -> AgentResult:
    return Run(agent or Mute(), "Go.", (), steps).execute(model)


ANSWER = Completion("Done.", finish_reason="stop")


def test_a_run_of_no_steps_asks_nothing(registry: Registry) -> None:
    model = ListModel()
    result = run(model, steps=0)
    assert (result.stop_reason, result.answer, result.steps, model.asked) == ("step_limit", "", (), [])


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "answer"), (None, "answer"), ("nonsense", "answer"), ("length", "length"), ("content_filter",) * 2],
)
def test_the_endpoints_reason_says_how_the_run_ended(reason: str | None, stop: str, registry: Registry) -> None:
    assert run(ListModel(Completion("It", finish_reason=reason))).stop_reason == stop


def test_no_system_message_is_sent_where_there_is_no_prompt(registry: Registry) -> None:
    mute, silent = ListModel(ANSWER), ListModel(ANSWER)
    run(mute)
    run(silent, agent=SilentAgent())
    assert [message["role"] for message in mute.asked[0]] == ["user"]
    assert silent.asked[0][0] == {"role": "system", "content": "You are silent."}


def test_what_is_remembered_of_a_malformed_call_is_well_formed(registry: Registry) -> None:
    """Endpoints refuse a conversation with anything else in it, even if their model wrote it."""
    calls = [RequestedCall("1", "", "{}"), RequestedCall("2", "no such tool!", "{broken")]
    model = ListModel(calling(*calls), ANSWER)
    result = run(model)
    _, asking, *answers = model.asked[1]
    assert asking["content"] is None
    named = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in asking["tool_calls"]]
    assert named[0] == ("1", "unnamed", "{}")
    assert named[1][2] == "{}"
    assert named[1][1].isidentifier()
    assert [answer["tool_call_id"] for answer in answers] == ["1", "2"]
    assert {call.outcome for call in result.tool_calls} == {"error"}
    assert result.tool_calls[1].arguments is None


def test_the_console_shows_calls_that_are_not_made(registry: Registry) -> None:
    registry["remove"] = {**entry(dict), "requires_confirmation": True}
    agent = SilentAgent(confirm="always")
    agent.console = Mock()
    run(
        ListModel(calling(RequestedCall("1", "remove", "{}"), RequestedCall("2", "nothing", "{}")), ANSWER), agent=agent
    )
    shown = [(one.args[0], one.args[1]) for one in agent.console.print_tool_outcome.call_args_list]
    assert shown == [("remove", "refused"), ("nothing", "error")]


def test_results_are_told_in_the_order_of_the_requests(registry: Registry) -> None:
    second_done = threading.Event()

    def first() -> str:
        assert second_done.wait(PATIENCE)
        return "first"

    def second() -> str:
        second_done.set()
        return "second"

    registry |= {"a": entry(first), "b": entry(second)}
    model = ListModel(calling(RequestedCall("1", "a", "{}"), RequestedCall("2", "b", "{}")), ANSWER)
    assert [call.content for call in run(model).tool_calls] == ["first", "second"]


def test_an_override_of_the_execution_sees_a_plain_name_and_causes_no_second_question(registry: Registry) -> None:
    asked, types = list[str](), list[type]()

    class Overriding(Mute):
        def _execute_tool(self, tool_name: str, tool_args: dict[str, Any]) -> Any:
            types.append(type(tool_name))
            return super()._execute_tool("".join(tool_name), {**tool_args})

    registry["t"] = entry(lambda: "made")
    agent = Overriding(confirm="always", on_confirmation=lambda request: asked.append(request.tool) is None)
    (call,) = run(ListModel(calling(RequestedCall("1", "t", "{}")), ANSWER), agent=agent).tool_calls
    assert (call.content, asked, types) == ("made", ["t"], [str])


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("text", "success"),
        ({"status": "success"}, "success"),
        ({"status": "error", "error": "no"}, "error"),
        ({"status": "error", "data": {"error_type": "timeout"}}, "error"),
        ({"status": "error", "data": {"error_type": "cancelled"}}, "cancelled"),
        ({"status": "error", "data": "cancelled"}, "error"),
    ],
)
def test_what_a_tool_returns_says_how_the_call_ended(value: Any, outcome: str, registry: Registry) -> None:
    registry["t"] = entry(lambda: value)
    (call,) = run(ListModel(calling(RequestedCall("1", "t", "{}")), ANSWER)).tool_calls
    assert call.outcome == outcome


def test_a_run_can_be_cancelled_once_and_from_within(registry: Registry) -> None:
    cancelled: list[bool] = []

    def stop() -> None:
        cancelled.extend([under_way.cancel(), under_way.cancel()])

    registry["stop"] = entry(stop)
    under_way = Run(Mute(), "Go.", (), 5)
    result = under_way.execute(ListModel(calling(RequestedCall("1", "stop", "{}")), ANSWER))
    assert cancelled == [True, False]
    assert result.stop_reason == "cancelled"
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]


def test_a_run_that_is_cancelled_before_it_begins_asks_nothing(registry: Registry) -> None:
    under_way, model = Run(Mute(), "Go.", (), 5), ListModel(ANSWER)
    under_way.cancel()
    result = under_way.execute(model)
    assert (result.stop_reason, result.answer, model.asked) == ("cancelled", "", [])


def test_an_exception_from_outside_cancels_the_calls_under_way(registry: Registry) -> None:
    scopes = []
    waiting, stopped = threading.Event(), threading.Event()

    def wait() -> None:
        scope = current_scope()
        assert scope is not None
        scopes.append(scope)
        scope.on_cancel(stopped.set)
        waiting.set()
        stopped.wait(PATIENCE)

    def interrupt() -> None:
        assert waiting.wait(PATIENCE)
        raise KeyboardInterrupt

    registry |= {"wait": entry(wait), "interrupt": entry(interrupt)}
    with pytest.raises(KeyboardInterrupt):
        run(ListModel(calling(RequestedCall("1", "wait", "{}"), RequestedCall("2", "interrupt", "{}"))))
    assert stopped.is_set()
    assert scopes[0].cancelled


variable = contextvars.ContextVar("variable", default="unset")


def test_what_jobs_say_and_how_they_end_is_told_in_order() -> None:
    def fail(_say: object) -> str:
        raise LookupError("no such thing")

    events = list(work({"a": lambda say: say("hello") or "done"}, scope=CancelScope(), name="test", limit=1))
    assert isinstance(events[1], Done)
    assert (events[0], events[1].key, events[1].value, events[1].error) == ("hello", "a", "done", None)
    (failed,) = work({"b": fail}, scope=CancelScope(), name="test", limit=1)
    assert isinstance(failed, Done)
    assert isinstance(failed.error, LookupError)


def test_a_job_sees_the_callers_context_and_changes_its_own_copy_only() -> None:
    variable.set("set")

    def change(_say: object) -> str:
        before = variable.get()
        variable.set("changed")
        return before

    jobs = dict.fromkeys(range(3), change)
    events = list(work(jobs, scope=CancelScope(), name="test", limit=1))
    assert [event.value for event in events if isinstance(event, Done)] == ["set"] * 3
    assert variable.get() == "set"


def test_a_cancelled_scope_abandons_the_jobs_that_run_and_begins_no_other(no_leaks: None) -> None:
    scope, began, go = CancelScope(), list[int](), threading.Event()

    def job(number: int) -> None:
        began.append(number)
        scope.cancel()
        go.wait(PATIENCE)

    jobs = {number: lambda _say, number=number: job(number) for number in range(3)}  # type: ignore[misc]
    with pytest.raises(WorkCancelled):
        list(work(jobs, scope=scope, name="test", limit=1))
    assert began == [0]
    with pytest.raises(WorkCancelled):
        list(work(jobs, scope=scope, name="test", limit=1))
    go.set()
    assert began == [0]
