"""Results are compared where no call waits for it: one at a time, and no more than there is room and time for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.tools import output_validation as output_checks
from gaia.mcp.tools.output_validation import OutputCheck, OutputChecks
from gaia.runtime.threads import PoolExhausted


class Threads:
    """Has done nothing of what was submitted before it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], object]] = []
        self.submit = Mock(side_effect=self.tasks.append)

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


class Subject:
    """The checks of a server, and what they have seen."""

    def __init__(self) -> None:
        self.threads: Any = Threads()
        self.checks = OutputChecks("one", self.threads)
        self.seen: list[Mapping[str, Any]] = []

    def check(self) -> OutputCheck:
        return OutputCheck(self.checks, self._look, fails_call=False)

    def _look(self, result: Mapping[str, Any]) -> None:
        self.seen.append(result)

    def add(self, result: bytes) -> None:
        self.check().note_bytes(result)


@pytest.fixture
def subject() -> Subject:
    return Subject()


class TestResults:
    def test_all_that_wait_are_checked_on_one_thread(self, subject: Subject) -> None:
        subject.add(b'{"a":1}')
        subject.add(b'{"no":JSON')
        subject.add(b'{"b":2}')
        assert (len(subject.threads.tasks), subject.seen) == (1, [])
        subject.threads.run()
        assert subject.seen == [{"a": 1}, {"b": 2}]
        subject.add(b'{"c":3}')
        subject.threads.run()
        assert subject.seen[-1] == {"c": 3}

    def test_what_there_is_no_room_for_is_left_out(self, subject: Subject) -> None:
        for _ in range(1000):
            subject.add(b"{}")
        subject.threads.run()
        assert 1 < len(subject.seen) < 1000

    def test_so_is_what_is_too_large_together(self, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(output_checks, "_CHEAP_SECONDS", 1000.0)
        for _ in range(10):
            subject.add(b'{"a":"%b"}' % (b"x" * 3_000_000))
        subject.threads.run()
        assert len(subject.seen) == 1

    def test_after_an_expensive_check_the_server_rests(self, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        spent, now = iter((0.0, 2.0, 2.0, 2.0)), 100.0
        monkeypatch.setattr("time.thread_time", lambda: next(spent))
        monkeypatch.setattr("time.monotonic", lambda: now)
        subject.add(b'{"a":1}')
        subject.add(b'{"b":2}')
        subject.threads.run()
        now = 117.9
        subject.add(b'{"c":3}')
        now = 118.0
        subject.add(b'{"d":4}')
        subject.threads.run()
        assert subject.seen == [{"a": 1}, {"d": 4}]

    def test_without_a_thread_they_wait_for_the_next_one(self, subject: Subject) -> None:
        submit, subject.threads.submit = subject.threads.submit, Mock(side_effect=PoolExhausted)
        subject.add(b"{}")
        subject.threads.submit = submit
        subject.add(b"{}")
        subject.threads.run()
        assert len(subject.seen) == 2

    def test_the_caller_may_change_what_it_has(self, subject: Subject) -> None:
        result = {"content": ["a lot"], "structuredContent": {"a": [1]}}
        subject.check().note(result)
        result["structuredContent"]["a"].append(2)  # type: ignore[call-overload]
        subject.check().note({"content": []})
        subject.check().note({"isError": True, "structuredContent": 1})
        subject.check().note({"structuredContent": object()})
        subject.check().note({"structuredContent": 10**100})
        subject.threads.run()
        assert subject.seen == [{"structuredContent": {"a": [1]}}, {}]


def test_a_check_runs_in_the_context_of_the_caller(subject: Subject) -> None:
    trace: ContextVar[str] = ContextVar("trace", default="none")
    seen: list[str] = []
    token = trace.set("the caller's")
    check = OutputCheck(subject.checks, lambda _: seen.append(trace.get()), fails_call=False)
    trace.reset(token)
    check.note({})
    subject.threads.run()
    assert seen == ["the caller's"]


class TestPreparing:
    def test_checks_go_between_its_steps(self, subject: Subject) -> None:
        subject.checks.prepare(subject.seen.append({"schema": number}) for number in range(2))
        subject.add(b"{}")
        subject.threads.run()
        assert subject.seen == [{"schema": 0}, {}, {"schema": 1}]

    def test_it_ends_with_the_client(self, subject: Subject) -> None:
        subject.checks.prepare(subject.seen.append({"schema": number}) for number in range(9))
        subject.threads.tasks.pop(0)()
        subject.threads.drain = Mock()
        subject.checks.end()
        subject.threads.run()
        assert len(subject.seen) < 9
        subject.threads.drain.assert_called_once()
