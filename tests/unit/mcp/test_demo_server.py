"""The demo server, over bare pipes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.raw_session import RawSession
from tests.waiting import PATIENCE

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.fixture(scope="session")
def command(starts_processes: None) -> list[str]:
    # As a module and not as a file: that is how users start it, and how coverage knows what it measures.
    return [sys.executable, "-m", "gaia.mcp.demo_server"]


@pytest.fixture
def fresh(command: list[str]) -> Iterator[RawSession]:
    """A session before its handshake."""
    with RawSession(command) as session:
        yield session


@pytest.fixture
def session(fresh: RawSession) -> RawSession:
    """A session after its handshake."""
    fresh.initialize()
    return fresh


@pytest.fixture(scope="class")
def shared(command: list[str]) -> Iterator[RawSession]:
    """A session for the tests of a class that leave the server as it was."""
    with RawSession(command) as session:
        session.initialize()
        yield session


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


class TestHandshake:
    @pytest.mark.parametrize("revision", REVISIONS)
    def test_answers_a_revision_that_it_knows(self, fresh: RawSession, revision: str) -> None:
        result = fresh.initialize(revision)

        assert result["protocolVersion"] == revision
        assert result["serverInfo"]["name"] == "gaia-demo"

    def test_answers_its_newest_revision_to_one_that_it_does_not_know(self, fresh: RawSession) -> None:
        assert fresh.initialize("1.0.0")["protocolVersion"] == REVISIONS[-1]

    def test_declares_what_it_can_do(self, fresh: RawSession) -> None:
        assert fresh.initialize()["capabilities"] == {"tools": {}}

    def test_only_ping_may_come_before(self, fresh: RawSession) -> None:
        assert fresh.request("ping")["result"] == {}
        assert fresh.request("tools/list")["error"]["code"] == -32600

    def test_a_probe_of_the_stateless_era_is_an_unknown_method(self, fresh: RawSession) -> None:
        assert fresh.request("server/discover")["error"]["code"] == -32601
        assert fresh.initialize()["protocolVersion"] == REVISIONS[-1]

    def test_happens_once(self, session: RawSession) -> None:
        error = session.request("initialize", {"protocolVersion": REVISIONS[0]})["error"]

        assert error == {"code": -32600, "message": "already initialized"}

    def test_needs_a_revision(self, fresh: RawSession) -> None:
        assert fresh.request("initialize", {})["error"]["code"] == -32602


class TestTools:
    def test_are_listed_with_schemas_and_annotations(self, shared: RawSession) -> None:
        tools = {tool["name"]: tool for tool in shared.request("tools/list")["result"]["tools"]}

        assert set(tools) == {"add", "echo", "sleep", "fail", "crash", "counter"}
        assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools.values())
        assert tools["add"]["inputSchema"]["required"] == ["a", "b"]
        assert tools["add"]["outputSchema"]["required"] == ["sum"]
        assert tools["crash"]["inputSchema"]["required"] == []
        safe = {
            name
            for name, tool in tools.items()
            if tool["annotations"]["readOnlyHint"] or tool["annotations"]["idempotentHint"]
        }
        assert safe == {"add", "echo", "sleep", "fail"}
        assert tools["crash"]["annotations"]["destructiveHint"] is True

    def test_add(self, shared: RawSession) -> None:
        result = shared.call("add", {"a": 1, "b": 2.5})["result"]

        assert result["structuredContent"] == {"sum": 3.5}
        assert json.loads(result["content"][0]["text"]) == {"sum": 3.5}

    def test_add_cannot_answer_with_infinity(self, shared: RawSession) -> None:
        assert shared.call("add", {"a": 1e308, "b": 1e308})["result"]["isError"] is True
        assert shared.call("add", {"a": 10**400, "b": 1.5})["result"]["isError"] is True

    @pytest.mark.parametrize("text", ["", "naïve ✓ \U0001f600", "two\nlines\r\n", "\ud800", "x" * 2**20])
    def test_echo_returns_any_text(self, shared: RawSession, text: str) -> None:
        assert text_of(shared.call("echo", {"text": text})) == text

    def test_fail(self, shared: RawSession) -> None:
        response = shared.call("fail", {"message": "no luck"})

        assert response["result"] == {"content": [{"type": "text", "text": "no luck"}], "isError": True}

    @pytest.mark.parametrize(("arguments", "exit_code"), [({}, 1), ({"exit_code": 7}, 7)])
    def test_crash_ends_the_process_without_an_answer(
        self, session: RawSession, arguments: dict[str, int], exit_code: int
    ) -> None:
        session.send_call("crash", arguments)

        with pytest.raises(EOFError):
            session.receive()
        assert session.exit_code() == exit_code

    def test_counter_counts(self, session: RawSession) -> None:
        values = [session.call("counter")["result"]["structuredContent"]["value"] for _ in range(3)]

        assert values == [1, 2, 3]


class TestRunningCalls:
    def test_run_concurrently(self, session: RawSession) -> None:
        slow = session.send_call("sleep", {"seconds": 3600})
        assert text_of(session.call("echo", {"text": "meanwhile"})) == "meanwhile"
        session.notify("notifications/cancelled", {"requestId": slow})

    def test_report_progress_when_asked_to(self, session: RawSession) -> None:
        session.call("sleep", {"seconds": 0.25}, _meta={"progressToken": "mine"})

        reports = [other["params"] for other in session.others]
        assert reports
        assert {report["progressToken"] for report in reports} == {"mine"}
        assert {report["total"] for report in reports} == {0.25}
        progress = [report["progress"] for report in reports]
        assert progress == sorted(set(progress))

    def test_report_no_progress_otherwise(self, session: RawSession) -> None:
        session.call("sleep", {"seconds": 0.25})

        assert session.others == []

    def test_are_not_answered_once_cancelled(self, session: RawSession) -> None:
        cancelled = session.send_call("sleep", {"seconds": 3600})
        session.notify("notifications/cancelled", {"requestId": cancelled, "reason": "test"})
        session.notify("notifications/cancelled", {"requestId": "never sent"})

        session.call("sleep", {"seconds": 0.2})
        assert session.others == []

    def test_may_not_share_an_id(self, session: RawSession) -> None:
        request = {
            "jsonrpc": "2.0",
            "id": "twin",
            "method": "tools/call",
            "params": {"name": "sleep", "arguments": {"seconds": 3600}},
        }
        session.send(request, request)

        assert session.receive()["error"] == {"code": -32600, "message": "request 'twin' is already running"}


class TestErrors:
    @pytest.mark.parametrize(
        ("tool", "arguments", "named"),
        [
            ("add", {"a": 1}, "missing argument 'b'"),
            ("add", {"a": 1, "b": "2"}, "argument 'b' must be of type number"),
            ("add", {"a": True, "b": 2}, "argument 'a' must be of type number"),
            ("add", {"a": 1, "b": 2, "c": 3}, "unexpected argument 'c'"),
            ("echo", {"text": None}, "argument 'text' must be of type string"),
            ("crash", {"exit_code": 1.5}, "argument 'exit_code' must be of type integer"),
            ("crash", {"exit_code": 256}, "argument 'exit_code' must be from 0 to 255"),
        ],
    )
    def test_invalid_arguments_are_named(
        self, shared: RawSession, tool: str, arguments: dict[str, Any], named: str
    ) -> None:
        error = shared.call(tool, arguments)["error"]

        assert error["code"] == -32602
        assert named in error["message"]

    def test_an_unknown_tool_is_an_invalid_parameter(self, shared: RawSession) -> None:
        assert shared.call("nope")["error"] == {"code": -32602, "message": "unknown tool 'nope'"}
        assert shared.request("tools/call", {"name": ["echo"]})["error"]["code"] == -32602
        assert shared.request("tools/call", {"name": "echo", "arguments": []})["error"]["code"] == -32602

    def test_an_unknown_method_is_not_found(self, shared: RawSession) -> None:
        assert shared.request("nope/nope")["error"]["code"] == -32601

    @pytest.mark.parametrize("line", [b"junk", b"\xff\xfe", b'{"half":', b"[" * 100_000, b'{"a": NaN}'])
    def test_what_is_no_json_is_a_parse_error(self, shared: RawSession, line: bytes) -> None:
        shared.write(line + b"\n")

        answer = shared.receive()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)

    @pytest.mark.parametrize(
        "line",
        [
            b"1",
            b"[]",
            b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
            b'{"id":1,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1}',
        ],
    )
    def test_what_is_no_request_is_invalid(self, shared: RawSession, line: bytes) -> None:
        shared.write(line + b"\n")

        assert shared.receive()["error"]["code"] == -32600

    def test_params_must_be_an_object(self, shared: RawSession) -> None:
        shared.write(b'{"jsonrpc":"2.0","id":"list","method":"tools/list","params":[]}\n')

        assert shared.receive()["error"]["code"] == -32602

    def test_what_wants_no_answer_gets_none(self, session: RawSession) -> None:
        session.write(b"\n")
        session.notify("notifications/whatever")
        session.send({"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "method": 7})
        session.notify("notifications/cancelled", {})

        assert session.request("ping")["result"] == {}
        assert session.others == []

    def test_a_batch_is_answered_in_the_revision_that_has_batches(self, fresh: RawSession) -> None:
        fresh.initialize("2025-03-26")
        fresh.write(b'[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]\n')

        assert [fresh.receive()["id"], fresh.receive()["id"]] == ["a", "b"]


class TestProcess:
    def test_ends_at_once_with_its_input_even_when_a_call_is_running(self, session: RawSession) -> None:
        session.send_call("sleep", {"seconds": 3600})
        session.close_stdin()

        assert session.process.wait(PATIENCE) == 0
        assert session.stderr().count("\n") == 1

    def test_answers_what_was_asked_before_the_end_of_input(self, session: RawSession) -> None:
        requests = [session.send_call("echo", {"text": "last words"}) for _ in range(5)]
        session.close_stdin()

        assert {session.receive()["id"] for _ in requests} == set(requests)

    def test_ends_with_its_input_even_when_an_answer_is_not_read(self, session: RawSession) -> None:
        # More than a pipe holds, so the thread of the call waits for a reader.
        session.send_call("echo", {"text": "x" * 1_000_000})
        session.close_stdin()

        assert session.process.wait(PATIENCE) == 0

    def test_ends_quietly_when_nobody_reads_its_answers(self, command: list[str]) -> None:
        read_end, write_end = os.pipe()
        os.close(read_end)
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        ended = subprocess.run(command, input=ping, stdout=write_end, stderr=subprocess.PIPE, timeout=PATIENCE)
        os.close(write_end)

        assert ended.returncode == 0
        assert b"Traceback" not in ended.stderr

    def test_an_interrupt_ends_it_without_a_traceback(self, command: list[str]) -> None:
        # A shell starts background jobs with the signal ignored, and that would be inherited.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            session = RawSession(command)
        finally:
            signal.signal(signal.SIGINT, before)
        with session:
            session.initialize()
            session.process.send_signal(signal.SIGINT)
            assert session.exit_code() == 130
            assert "Traceback" not in session.stderr()

    def test_greets_on_stderr(self, session: RawSession) -> None:
        assert f"(pid {session.process.pid})" in session.stderr()

    @pytest.mark.parametrize(("argument", "exit_code"), [("--help", 0), ("--nope", 2)])
    def test_explains_itself_when_it_is_given_arguments(
        self, command: list[str], argument: str, exit_code: int
    ) -> None:
        with RawSession([*command, argument]) as session:
            assert session.exit_code() == exit_code
            assert "A small, real MCP server" in session.stderr()

    def test_runs_as_a_file_with_nothing_but_the_standard_library(self, demo_server: dict[str, Any]) -> None:
        with RawSession([demo_server["command"], "-S", *demo_server["args"]], env={}) as session:
            assert session.initialize()["serverInfo"]["name"] == "gaia-demo"
