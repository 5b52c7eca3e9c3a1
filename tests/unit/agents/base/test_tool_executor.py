"""A tool call, from what a model wrote to what the tool returned. `Agent._execute_tool` is tested with the agent."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.agents.base.confirmation import ConfirmationGate, ConfirmationPolicy
from gaia.agents.base.console import SilentConsole
from gaia.agents.base.tool_executor import (
    CallNotMade,
    PreparedCall,
    ResultBudget,
    ToolExecutor,
    parse_arguments,
    text_of_result,
)
from gaia.agents.base.tool_schema import name_for_api
from gaia.agents.base.tools import resolve_tool_name

Registry = dict[str, dict[str, Any]]


def entry(function: Callable[..., Any]) -> dict[str, Any]:
    return {"name": "upper", "parameters": {"text": {"type": "string", "required": True}}, "function": function}


@pytest.fixture
def registry() -> Registry:
    return {"upper": entry(lambda text: text.upper())}


class Setting:
    """An executor, and the arguments of the calls that it asked about."""

    def __init__(self, registry: Registry, policy: ConfirmationPolicy = "always", answer: bool = True) -> None:
        self.asked: list[Any] = []
        gate = ConfirmationGate(policy, lambda request: self.asked.append(dict(request.arguments)) or answer)
        self.executor = ToolExecutor(registry, lambda name: resolve_tool_name(name, registry), gate, SilentConsole())

    def make(self, call: PreparedCall, arguments: dict[str, Any]) -> Any:
        """Make a call that is under way, as a run does."""
        with call.under_way():
            return self.executor.execute(call.key, arguments)


class TestAPreparedCall:
    def test_is_made_without_being_asked_about_again(self, registry: Registry) -> None:
        setting = Setting(registry)
        call = setting.executor.prepare("Upper", {"text": "a"})
        assert (call.key, call.arguments) == ("upper", {"text": "a"})
        setting.executor.confirm(call)
        setting.executor.confirm(call)
        assert setting.make(call, {"text": "a"}) == "A"
        assert setting.asked == [{"text": "a"}]

    def test_that_was_not_confirmed_is_confirmed_before_it_is_made(self, registry: Registry) -> None:
        setting = Setting(registry, answer=False)
        call = setting.executor.prepare("upper", {"text": "a"})
        assert "refused" in setting.make(call, call.arguments)["error"]
        assert setting.asked == [{"text": "a"}]

    def test_whose_arguments_were_changed_is_another_call(self, registry: Registry) -> None:
        setting, arguments = Setting(registry), {"text": "a"}
        call = setting.executor.prepare("upper", arguments)
        setting.executor.confirm(call)
        arguments["text"] = "b"
        assert setting.make(call, arguments) == "B"
        assert setting.asked == [{"text": "a"}, {"text": "b"}]
        assert "missing required" in setting.make(call, {})["error"]

    def test_is_made_with_the_arguments_that_an_override_has_converted(self, registry: Registry) -> None:
        setting = Setting(registry)
        registry["upper"] = entry(lambda text: list(range(text)))
        call = setting.executor.prepare("upper", {"text": 2.0})
        setting.executor.confirm(call)
        assert setting.make(call, {"text": 2}) == [0, 1]
        assert setting.asked == [{"text": 2.0}]

    def test_that_is_over_is_no_permission_for_another(self, registry: Registry) -> None:
        setting = Setting(registry)
        call = setting.executor.prepare("upper", {"text": "a"})
        setting.executor.confirm(call)
        setting.make(call, {"text": "a"})
        setting.executor.execute("upper", {"text": "a"})
        assert setting.asked == [{"text": "a"}, {"text": "a"}]

    def test_whose_tool_was_replaced_is_another_call(self, registry: Registry) -> None:
        setting = Setting(registry)
        call = setting.executor.prepare("upper", {"text": "a"})
        setting.executor.confirm(call)
        registry["upper"] = entry(lambda text: f"replaced {text}")
        assert setting.make(call, call.arguments) == "replaced a"
        assert setting.asked == [{"text": "a"}, {"text": "a"}]
        del registry["upper"]
        assert "Unknown tool" in setting.make(call, call.arguments)["error"]


class TestACallThatIsNotMade:
    @pytest.mark.parametrize(
        ("name", "arguments", "tool", "message"),
        [
            ("uper", {"text": "a"}, "uper", "did you mean upper?"),
            ("UPPER", {}, "upper", "missing required: text"),
            ("upper", [], "upper", "must be an object"),
            ("listed", {}, "listed", "cannot be called"),
        ],
    )
    def test_says_why_and_of_which_tool(
        self, registry: Registry, name: str, arguments: Any, tool: str, message: str
    ) -> None:
        registry["listed"] = {"name": "listed"}
        with pytest.raises(CallNotMade, match=message) as reason:
            Setting(registry).executor.prepare(name, arguments)
        assert (reason.value.tool, reason.value.outcome) == (tool, "error")

    def test_says_that_its_tool_went_while_it_was_looked_for(self, registry: Registry) -> None:
        executor = ToolExecutor(registry, lambda _: "gone", ConfirmationGate("never", None), SilentConsole())
        with pytest.raises(CallNotMade, match="The tool 'gone' has just gone"):
            executor.prepare("upper", {"text": "a"})

    def test_says_that_it_was_refused(self, registry: Registry) -> None:
        executor = Setting(registry, answer=False).executor
        with pytest.raises(CallNotMade, match="The user refused the call of 'upper'") as reason:
            executor.confirm(executor.prepare("upper", {"text": "a"}))
        assert reason.value.outcome == "refused"


def test_a_tool_is_found_by_the_name_that_endpoints_accept_for_it(registry: Registry) -> None:
    registry["in capitals"] = registry.pop("upper")
    assert Setting(registry, "never").executor.prepare(name_for_api("in capitals"), {"text": "a"}).key == "in capitals"


@pytest.mark.parametrize(
    ("text", "arguments"), [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("", {}), (" ", {}), (None, {})]
)
def test_arguments_are_a_json_object_as_text(text: object, arguments: dict[str, Any]) -> None:
    assert parse_arguments(text, "t") == arguments


@pytest.mark.parametrize("text", ['{"a": ', "[1]", 7, "[" * 100_000, "x" * 100_000])
def test_what_is_no_json_object_is_shown_to_the_model_in_part(text: object) -> None:
    with pytest.raises(CallNotMade, match=r"not valid JSON|must be a JSON object") as reason:
        parse_arguments(text, "t")
    assert len(str(reason.value)) < 1000


class TestAToolThatIsMissing:
    def test_is_explained_by_what_is_known_of_it(self, registry: Registry) -> None:
        def explain(name: str) -> str | None:
            return "its server is down" if name == "mcp_late_x" else None

        executor = dataclasses.replace(Setting(registry).executor, explain_missing=explain)
        assert executor.execute("mcp_late_x", {}) == {"status": "error", "error": "its server is down"}
        assert "Unknown tool" in executor.execute("other", {})["error"]


NOTE = re.compile(r"\n\n\[… (\d+) of (\d+) bytes left out; the full text is in (.+) …\]\n\n", re.DOTALL)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        ({"ä": [1, None]}, '{"ä": [1, null]}'),
        (None, "null"),
        (Path("/a"), '"/a"'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_a_result_is_told_as_text_or_json(result: Any, text: str) -> None:
    assert text_of_result(result) == text


def test_a_result_that_contains_itself_is_told_somehow() -> None:
    result: list[Any] = []
    result.append(result)
    assert text_of_result(result) == "[[...]]"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.integers(1, 100))
def test_head_and_tail_are_what_the_text_begins_and_ends_with_and_the_file_has_all_of_it(text: str, limit: int) -> None:
    fitted = ResultBudget(limit).fit(text, "t")
    size = len(text.encode())
    if size <= limit:
        assert fitted == text
        return
    head, omitted, total, path, tail = NOTE.split(fitted)[:5] if NOTE.search(fitted) else pytest.fail(fitted)
    assert (int(omitted), int(total)) == (size - limit, size)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) + len(tail.encode()) <= limit
    assert "gaia-results-" in path


def test_files_are_private_and_go_with_the_budget() -> None:
    budget = ResultBudget(10)
    match = NOTE.search(budget.fit("x" * 100, "../../etc/passwd"))
    assert match is not None
    file = Path(match[3])
    assert file.read_text() == "x" * 100
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert file.name.startswith("______etc_passwd-")
    del budget
    gc.collect()
    assert not file.parent.exists()


def test_files_in_a_directory_of_ones_own_stay(tmp_path: Path) -> None:
    budget = ResultBudget(10, tmp_path / "deep" / "down")
    budget.fit("x" * 100, "t")
    budget.fit("y" * 100, "t")
    del budget
    gc.collect()
    assert sorted(file.read_text()[0] for file in (tmp_path / "deep" / "down").iterdir()) == ["x", "y"]


def test_a_text_that_cannot_be_saved_is_shortened_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fitted = ResultBudget(10, tmp_path / "file").fit("x" * 100, "t")
    assert "could not be saved" in fitted
    assert fitted.startswith("xxxxxx\n")


def test_lone_surrogates_become_question_marks() -> None:
    assert ResultBudget(10).fit(json.loads('"a\\ud800"'), "t") == "a?"


def test_a_budget_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="positive"):
        ResultBudget(0)
