"""What each adapter has to do, whatever the framework: `AdapterContract`, which each framework's module runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from gaia.mcp import MCPClientManager, MCPTool
from gaia.mcp.aio import AsyncMCPClientManager
from tests.adapters.conftest import Killer, Ledger, assert_idle
from tests.tracing import Tracing

Json = dict[str, Any]
Step = tuple[str, Json] | Callable[[], object]
"""A call that the model makes, or a function that is run before its next call."""


class Told(NamedTuple):
    """What the model was told of one call."""

    text: str
    failed: bool | None = None
    """None if the framework does not tell it apart from the text."""


Play = Callable[..., list[Told]]
Begin = Callable[..., Awaitable[object]]

RECORD = ("mcp_ledger_record", {"text": "next"})
ADD = ("mcp_ledger_add", {"a": 19, "b": 2})
HOLD = ("mcp_ledger_hold", {"text": "held"})


class AdapterContract:
    """Subclasses have a fixture `play`: it runs an agent of a manager to its end, and takes the manager and steps.

    Its keywords are those of a `ToolSelection`. The other fixtures are for what not every framework has.
    """

    @pytest.fixture
    def begin(self) -> Begin:
        """An awaitable run of an agent, of a manager and steps."""
        pytest.skip("this framework makes calls in threads, where it does not cancel them")

    @pytest.fixture
    def answer(self) -> Play:
        """Like `play`, with an answer before the steps: True or False, to each question whether a call is approved."""
        pytest.skip("this framework has no way of its own to ask")

    def test_the_agent_calls_the_tool(self, manager: MCPClientManager, play: Play, ledger: Ledger) -> None:
        added, recorded = play(manager, ADD, RECORD)

        assert "sum" in added.text
        assert "21" in added.text
        assert "recorded next, 1 times" in recorded.text
        assert not added.failed
        assert ledger.lines == ["next"]

    def test_an_asynchronous_manager_serves_as_well(self, manager: MCPClientManager, play: Play) -> None:
        (told,) = play(AsyncMCPClientManager.over(manager), RECORD)

        assert "recorded next, 1 times" in told.text

    def test_a_server_killed_between_calls_is_back_for_the_next_one(
        self, manager: MCPClientManager, play: Play, killer: Killer, ledger: Ledger
    ) -> None:
        first, second = [("mcp_ledger_record", {"text": text}) for text in ("first", "second")]

        told = play(manager, first, killer.kill, second)

        assert [one.text.count("1 times") for one in told] == [1, 1]
        assert not any(one.failed for one in told)
        assert ledger.lines == ["first", "second"]

    def test_a_call_in_which_the_server_is_killed_is_not_repeated_and_the_model_is_told(
        self, manager: MCPClientManager, play: Play, killer: Killer, ledger: Ledger
    ) -> None:
        with killer.during("held"):
            held, after = play(manager, HOLD, RECORD)

        assert "Do not repeat it" in held.text
        assert held.failed is not False
        assert "recorded next, 1 times" in after.text
        assert not after.failed
        assert ledger.lines == ["held", "next"]

    def test_a_call_of_a_safe_tool_is_repeated_by_the_manager(
        self, manager: MCPClientManager, play: Play, killer: Killer, ledger: Ledger
    ) -> None:
        with killer.during("page"):
            (told,) = play(manager, ("mcp_ledger_read", {"text": "page"}))

        assert "read page" in told.text
        assert not told.failed
        assert ledger.lines == ["page", "page"]

    def test_a_tool_that_fails_is_an_error_for_the_model(self, manager: MCPClientManager, play: Play) -> None:
        failed, after = play(manager, ("mcp_ledger_fail", {"message": "no such city"}), RECORD)

        assert "Error: no such city" in failed.text
        assert failed.failed is not False
        assert "Do not repeat" not in failed.text
        assert not after.failed

    def test_a_lost_call_of_a_safe_tool_may_be_repeated_by_the_model(
        self, manager: MCPClientManager, play: Play, killer: Killer
    ) -> None:
        with killer.during("page", end=lambda: manager.stop_server("ledger")):
            (told,) = play(manager, ("mcp_ledger_read", {"text": "page"}))

        assert "may be repeated" in told.text
        assert told.failed is not False

    def test_the_model_is_told_that_the_server_is_gone(
        self, manager: MCPClientManager, play: Play, ledger: Ledger
    ) -> None:
        added, gone = play(manager, ADD, lambda: manager.stop_server("ledger"), RECORD)

        assert not added.failed
        assert "had no effect" in gone.text
        assert gone.failed is not False
        assert ledger.lines == []

    def test_a_cancelled_run_cancels_its_call(self, manager: MCPClientManager, begin: Begin, ledger: Ledger) -> None:
        async def run() -> None:
            await ledger.cancelled_with("held", begin(manager, HOLD))

        asyncio.run(run())
        assert_idle(manager)

    def test_progress_is_passed_on(self, manager: MCPClientManager, play: Play) -> None:
        reports: list[Any] = []

        play(manager, ("mcp_ledger_steps", {}), on_progress=lambda *report: reports.append(report))

        assert reports == [("mcp_ledger_steps", 1, 2, None), ("mcp_ledger_steps", 2, 2, None)]

    def test_a_person_is_asked_about_the_calls_that_need_approval(
        self, manager: MCPClientManager, play: Play, ledger: Ledger
    ) -> None:
        asked: list[Any] = []

        def on_approval(tool: MCPTool, arguments: Json) -> bool:
            asked.append((tool.name, arguments))
            return arguments == {"text": "good"}

        good, bad = [("mcp_ledger_record", {"text": text}) for text in ("good", "bad")]
        added, first, second = play(manager, ADD, good, bad, approve=["rec*"], on_approval=on_approval)

        assert not added.failed
        assert "recorded good" in first.text
        assert "needs a person's approval" in second.text
        assert second.failed is not False
        assert asked == [("record", {"text": "good"}), ("record", {"text": "bad"})]
        assert ledger.lines == ["good"]

    @pytest.mark.parametrize("approved", [True, False])
    def test_the_framework_asks_a_person(
        self, manager: MCPClientManager, answer: Play, ledger: Ledger, approved: bool
    ) -> None:
        told = answer(manager, approved, ADD, RECORD, approve=lambda tool, arguments: arguments == {"text": "next"})

        assert ("recorded next" in told[-1].text) is approved
        assert ledger.lines == ["next"] * approved

    def test_structured_content_without_a_text_is_shown(self, manager: MCPClientManager, play: Play) -> None:
        (told,) = play(manager, ("mcp_ledger_figures", {}))

        assert "height" in told.text

    def test_arguments_may_have_any_names(self, manager: MCPClientManager, play: Play) -> None:
        arguments = {name: f"the {name}" for name in ("config", "run_manager", "context", "self", "runtime", "name")}

        (told,) = play(manager, ("mcp_ledger_configure", arguments))

        assert all(value in told.text for value in arguments.values())

    def test_the_span_of_a_call_is_a_child_of_the_applications(
        self, tracing: Tracing, manager: MCPClientManager, play: Play
    ) -> None:
        with tracing.provider.get_tracer("application").start_as_current_span("run"):
            play(manager, ("mcp_ledger_add", {"a": 1, "b": 2}))

        (span,) = tracing.wait_for("tools/call add")
        assert span.parent == tracing.only("run").context
