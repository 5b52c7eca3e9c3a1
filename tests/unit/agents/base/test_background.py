"""Work on other threads that can be abandoned; how runs use it is tested with them."""

from __future__ import annotations

import contextvars
import threading

import pytest

from gaia.agents.base.background import Done, WorkCancelled, work
from gaia.runtime.cancellation import CancelScope
from tests.waiting import PATIENCE

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
