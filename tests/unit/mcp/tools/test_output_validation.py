"""Results of tools that promised something: whether it is there."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from unittest.mock import Mock, patch

import pytest
from opentelemetry import trace

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol import json_schema
from gaia.mcp.tools import output_validation as output_checks
from gaia.mcp.tools.output_validation import OutputCheck, OutputChecks, OutputValidation
from gaia.mcp.tools.tool import MCPTool
from gaia.runtime.threads import PoolExhausted
from tests.fake_transport import FakeTransport
from tests.tracing import Tracing
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
RARE: Json = {**SCHEMA, "not": {"type": "array"}}
"""A schema that only the whole check knows."""

GOOD: Json = {"content": [], "structuredContent": {"n": 1}}
BAD: Json = {"content": [], "structuredContent": {"n": "one"}}


def tool(schema: Any = SCHEMA) -> MCPTool:
    return MCPTool("count", "", {}, output_schema=schema)


def problem(result: Json, schema: Any = SCHEMA, mode: Any = "error") -> InvalidResponse | None:
    return check_of(OutputValidation("fake", mode, str), schema)(result)


def check_of(outputs: OutputValidation, schema: Any = SCHEMA) -> Callable[[Json], InvalidResponse | None]:
    check = outputs.check_of(tool(schema), Mock())
    assert check is not None
    return check.problem


class TestChecking:
    def test_a_result_that_fits_is_fine(self) -> None:
        assert problem(GOOD) is None

    @pytest.mark.parametrize("value", [None, 0, "text", [1], True])
    def test_an_output_may_be_any_json_value(self, value: Any) -> None:
        assert problem({"structuredContent": value}, {"enum": [value]}) is None

    @pytest.mark.parametrize(
        ("result", "complaint"),
        [
            (BAD, "n: 'one' is not of type 'integer'"),
            ({"structuredContent": None}, "None is not of type 'object'"),
            ({"content": []}, "there is no structuredContent"),
        ],
    )
    def test_one_that_does_not_says_where(self, result: Json, complaint: str) -> None:
        error = problem(result)
        assert error is not None
        assert str(error) == f"the result of count does not fit its outputSchema: {complaint}"

    @pytest.mark.parametrize("result", [{**BAD, "isError": True}, {"content": [], "isError": True}])
    def test_a_reported_error_is_no_output(self, result: Json) -> None:
        assert problem(result) is None

    def test_there_is_nothing_to_check_without_a_promise(self) -> None:
        outputs = OutputValidation("fake", "error", str)
        assert outputs.check_of(tool(None), Mock()) is None
        assert OutputValidation("fake", "off", str).check_of(tool(), Mock()) is None

    def test_a_warning_is_logged_without_secrets_and_the_result_passes(self, caplog: pytest.LogCaptureFixture) -> None:
        check = check_of(OutputValidation("fake", "warn", lambda text: text.replace("one", "***")))
        assert check(BAD) is None
        assert "output_invalid" in caplog.text
        assert "'***' is not of type" in caplog.text

    def test_a_schema_that_changes_is_read_anew(self) -> None:
        outputs = OutputValidation("fake", "error", str)
        before, after = check_of(outputs), check_of(outputs, {"required": ["m"]})
        assert before(GOOD) is None
        assert after(GOOD) is not None
        assert before(GOOD) is None


class TestSchemasOfNoUse:
    @pytest.mark.parametrize(
        "schema", [{"type": "nonsense"}, {"$ref": "https://example.com/schema"}, {"$schema": "urn:own"}]
    )
    def test_they_are_said_once_and_lose_no_result(self, schema: Json, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        outputs = OutputValidation("fake", "error", str)
        for _ in range(3):
            assert check_of(outputs, schema)(BAD) is None
        assert caplog.text.count("output_schema_unusable") == 1

    def test_a_part_that_cannot_be_checked_is_said_once_and_the_others_are_checked(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        outputs = OutputValidation("fake", "error", lambda text: text.replace("secret", "***"))
        schema = {"properties": {"n": {"pattern": "^(?!secret)"}, "m": {"type": "integer"}}}
        check = check_of(outputs, schema)
        for _ in range(3):
            assert check(BAD) is None
            assert check({"structuredContent": {"n": "one", "m": "two"}}) is not None
        assert caplog.text.count("output_partly_unchecked") == 1
        assert "^(?!***)" in caplog.text


class TestResultsThatTakeTooLong:
    @pytest.mark.parametrize("late", ["work", "nesting"])
    def test_one_is_not_checked_and_the_next_one_is(
        self, late: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        outputs = OutputValidation("fake", "error", str)
        check = check_of(outputs, {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}})
        assert check({"structuredContent": [1, "one"]}) is not None
        value: Any = [1] * 1000
        if late == "work":
            monkeypatch.setattr(json_schema, "_MAX_WORK", 10_000)
        else:
            for _ in range(1000):
                value = [value]
        assert check({"structuredContent": value}) is None
        assert caplog.text.count("output_unchecked") == 1
        assert check({"structuredContent": [1, "one"]}) is not None
        assert "output_schema_unusable" not in caplog.text

    def test_what_other_threads_do_meanwhile_does_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # A thousand seconds pass each time that the clock is looked at.
        clock = itertools.count(0.0, 1000.0)
        monkeypatch.setattr("time.monotonic", lambda: next(clock))
        monkeypatch.setattr("time.thread_time", lambda: 0.0)
        assert problem({"structuredContent": [1] * 10_000 + ["one"]}, {"items": {"type": "integer"}}) is not None


@pytest.fixture
def checked() -> list[str]:
    """The servers of the results whose checks have begun."""
    return []


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, checked: list[str]) -> Iterator[threading.Event]:
    """Checks of all servers but `free` end when this is set."""
    held, look = threading.Event(), OutputValidation._check

    def wait(outputs: OutputValidation, *arguments: Any) -> InvalidResponse | None:
        checked.append(outputs._server)
        assert outputs._server == "free" or held.wait(PATIENCE)
        return look(outputs, *arguments)

    monkeypatch.setattr(OutputValidation, "_check", wait)
    yield held
    held.set()


@pytest.fixture
def connect() -> Iterator[Callable[..., MCPClient]]:
    """A client whose tool `count` answers with a result of the test."""
    clients: list[MCPClient] = []

    def connect(result: Json, schema: Json = SCHEMA, **settings: Any) -> MCPClient:
        transport = FakeTransport()
        transport.tools = [{"name": "count", "outputSchema": schema}]
        transport.answers["tools/call"] = lambda _: result
        clients.append(MCPClient("fake", transport, protocol="handshake", **settings))
        assert clients[-1].connect()
        return clients[-1]

    yield connect
    for client in clients:
        client.disconnect()


class TestCalls:
    def test_by_default_a_result_that_does_not_fit_is_logged(
        self, connect: Callable[..., MCPClient], caplog: pytest.LogCaptureFixture
    ) -> None:
        assert connect(BAD).call_tool("count") == BAD
        assert wait_until(lambda: "output_invalid" in caplog.text)

    def test_it_can_fail_the_call(self, connect: Callable[..., MCPClient]) -> None:
        client = connect(BAD, output_validation="error")
        outcome = client.call_tool("count")
        assert (outcome["error_type"], outcome["delivery"]) == ("invalid_response", "unknown")
        assert isinstance(client.submit_tool("count").exception(PATIENCE), InvalidResponse)

    def test_a_check_that_fails_ends_the_call(
        self, connect: Callable[..., MCPClient], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = connect(GOOD, RARE, output_validation="error")
        # As what an extension in Rust raises, it is no `Exception`.
        monkeypatch.setattr(OutputValidation, "_check", Mock(side_effect=BaseException("a mistake")))
        assert isinstance(client.submit_tool("count").exception(PATIENCE), InvalidResponse)

    def test_submitted_calls_are_checked_where_no_user_code_runs(
        self, connect: Callable[..., MCPClient], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = connect(GOOD, RARE, output_validation="error")
        threads: list[str] = []
        look = OutputValidation._check

        def spied(*arguments: Any) -> InvalidResponse | None:
            threads.append(threading.current_thread().name)
            return look(*arguments)

        monkeypatch.setattr(OutputValidation, "_check", spied)
        assert client.submit_tool("count").result(PATIENCE) == GOOD
        assert threads == ["mcp-fake-checks-1"]

    @pytest.mark.parametrize("mode", ["warn", "error"])
    def test_a_small_result_passes_at_once(
        self, connect: Callable[..., MCPClient], monkeypatch: pytest.MonkeyPatch, mode: Any
    ) -> None:
        client = connect(GOOD, output_validation=mode)
        ready = client._engine.tool_calls.outputs._ready

        def is_compiled() -> bool:
            return "count" in ready and ready["count"][0] is client.list_tools()[0].output_schema

        assert wait_until(is_compiled)
        whole = Mock(side_effect=AssertionError("not needed"))
        monkeypatch.setattr(OutputChecks, "add", whole)
        monkeypatch.setattr(OutputCheck, "problem", whole)
        assert client.call_tool("count") == GOOD
        assert client.submit_tool("count").result(PATIENCE) == GOOD
        # An equal schema of another listing counts as the same.
        client.list_tools(refresh=True)
        assert wait_until(is_compiled)
        assert client.call_tool("count") == GOOD

    @pytest.mark.parametrize("mode", ["warn", "error"])
    def test_the_log_of_a_problem_belongs_to_the_span_of_the_call(
        self, connect: Callable[..., MCPClient], monkeypatch: pytest.MonkeyPatch, mode: Any
    ) -> None:
        tracing, found = Tracing.installed(monkeypatch), list[int]()
        logger = Mock()
        logger.warning = lambda *_, **__: found.append(trace.get_current_span().get_span_context().span_id)
        monkeypatch.setattr(output_checks, "logger", logger)
        client = connect(BAD, output_validation=mode)
        client.call_tool("count")
        assert wait_until(lambda: bool(found))
        assert found == [tracing.call.context.span_id]

    def test_no_call_waits_for_a_check_that_it_cannot_fail_of(
        self, connect: Callable[..., MCPClient], held: threading.Event
    ) -> None:
        client = connect(GOOD, RARE)
        assert client.call_tool("count") == GOOD
        assert [client.submit_tool("count").result(PATIENCE) for _ in range(9)] == [GOOD] * 9

    def test_checks_delay_no_call_to_another_server(self, held: threading.Event, checked: list[str]) -> None:
        schema = RARE
        transports = {name: FakeTransport() for name in ("busy", "free")}
        for transport in transports.values():
            transport.answers["server/discover"] = lambda _: {}
            transport.tools = [{"name": "count", "outputSchema": schema}]
            transport.answers["tools/call"] = lambda _: GOOD
        with patch("gaia.mcp.client.mcp_client.transport_for", lambda server, *_: transports[server.name]):
            entries = {name: {"command": name, "outputValidation": "error"} for name in transports}
            with MCPClientManager(entries, start_timeout=None) as manager:
                busy = [manager.submit_tool("mcp_busy_count") for _ in range(9)]
                assert wait_until(lambda: checked == ["busy"])
                assert manager.submit_tool("mcp_free_count").result(PATIENCE) == GOOD
                assert not any(future.done() for future in busy)
                held.set()
                assert [future.result(PATIENCE) for future in busy] == [GOOD] * 9

    def test_schemas_are_ready_before_the_first_call(self, connect: Callable[..., MCPClient]) -> None:
        client = connect(GOOD, output_validation="error")
        assert wait_until(lambda: "count" in client._engine.tool_calls.outputs._ready)

    def test_a_client_that_ends_has_said_what_is_wrong(
        self, connect: Callable[..., MCPClient], caplog: pytest.LogCaptureFixture
    ) -> None:
        client = connect(BAD)
        client.call_tool("count")
        client.disconnect()
        assert "output_invalid" in caplog.text

    def test_it_can_be_turned_off(self, connect: Callable[..., MCPClient], caplog: pytest.LogCaptureFixture) -> None:
        assert connect(BAD, output_validation="off").call_tool("count") == BAD
        assert "output_invalid" not in caplog.text


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
