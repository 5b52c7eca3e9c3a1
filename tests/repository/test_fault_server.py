"""The fault server does what its scenario says: whoever tests with it relies on that."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers.fault_server import Scenario, ScenarioError
from tests.servers.processes import is_alive, wait_for_end
from tests.servers.raw_session import RawSession
from tests.servers.state_file import RecordedCall, read_state
from tests.waiting import wait_until

StartServer = Callable[..., RawSession]


@pytest.fixture
def start(fault_server: Callable[..., dict[str, Any]]) -> Callable[..., RawSession]:
    """Start a scripted server."""

    def start(**scenario: Any) -> RawSession:
        config = fault_server(**scenario)
        return RawSession([config["command"], *config["args"]])

    return start


def echo(session: RawSession, text: str = "hello") -> str:
    return session.call_for_text("echo", {"text": text})


class TestScenarios:
    @pytest.mark.parametrize(
        ("scenario", "complaint"),
        [
            ({"fault": []}, "Scenario has no fault; it has "),
            ({"faults": [{"hangs": True}]}, "Fault has no hangs"),
            ({"faults": [{"junk": [{"txt": "x"}]}]}, "Junk has no txt"),
            ({"faults": [{"junk": [{"text": "x", "size": 1}]}]}, "exactly one of"),
            ({"faults": [{"crash": "sometimes"}]}, "crash must be one of before_answer"),
            ({"exit_at_start": {"exit_code": 1}}, "ExitAtStart has no exit_code"),
            ({"child": "twin"}, "child must be one of"),
            ({"by_start": {"2": {}}}, "by_start needs a state_file"),
            ({"by_start": {"x": {}}, "state_file": "s"}, "'x' is not the number of a start"),
            ({"by_start": {"2": {"fault": []}}, "state_file": "s"}, "Scenario has no fault"),
            ([], "Scenario must be an object"),
        ],
    )
    def test_mistakes_are_errors(self, scenario: Any, complaint: str) -> None:
        with pytest.raises(ScenarioError, match=complaint):
            Scenario.from_json(scenario)

    def test_the_process_refuses_a_mistake_too(self, fault_server: Callable[..., dict[str, Any]]) -> None:
        args = [*fault_server()["args"][:-1], '{"fault": []}']
        with RawSession([sys.executable, *args]) as session:
            assert session.exit_code() == 2
            assert "bad scenario" in session.stderr()


class TestWithoutFaults:
    def test_it_is_a_server(self, start: StartServer) -> None:
        with start() as session:
            assert session.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"
            assert echo(session, "naïve ✓") == "naïve ✓"
            assert session.call_for_text("pid") == str(session.process.pid)
            assert json.loads(session.call_for_text("env"))["HOME"] == os.environ["HOME"]
            received = json.loads(session.call_for_text("received"))
            assert [message["method"] for message in received][:3] == [
                "initialize",
                "notifications/initialized",
                "tools/call",
            ]
            assert session.request("ping")["result"] == {}
            assert session.request("nope")["error"]["code"] == -32601
            assert session.call("nope")["error"]["code"] == -32602
            session.close_stdin()
            assert session.exit_code() == 0

    def test_tools_are_added_and_changed(self, start: StartServer) -> None:
        tools = [{"name": "echo", "annotations": {"readOnlyHint": True}}, {"name": "more"}]
        with start(tools=tools) as session:
            listed = {tool["name"]: tool for tool in session.request("tools/list")["result"]["tools"]}
            assert listed["echo"]["annotations"] == {"readOnlyHint": True}
            assert "text" in listed["echo"]["inputSchema"]["properties"]
            assert session.call_for_text("more") == "more"
            assert session.call_for_text("more", {"text": "mine"}) == "mine"

    @pytest.mark.parametrize(
        ("cursors", "expected"),
        [
            ("opaque", [None, "2", "4", None]),
            ("empty_string", [None, "", "4", None]),
            ("repeating", [None, "again", "again", "again"]),
            ("endless", [None, "2", "4", "6"]),
        ],
    )
    def test_tools_come_in_pages(self, start: StartServer, cursors: str, expected: list[str | None]) -> None:
        tools = [{"name": str(number)} for number in range(5)]
        seen: list[str | None] = [None]
        with start(tools=tools, only_tools=True, page_size=2, cursors=cursors) as session:
            for _page in range(3):
                params = {} if seen[-1] is None else {"cursor": seen[-1]}
                seen.append(session.request("tools/list", params)["result"].get("nextCursor"))
        assert seen == expected


class TestStart:
    @pytest.mark.parametrize(("ending", "code"), [({"code": 3}, 3), ({"signal": int(signal.SIGKILL)}, -signal.SIGKILL)])
    def test_ends_at_start(self, start: StartServer, ending: dict[str, int], code: int) -> None:
        with start(exit_at_start={"stderr": "no token", **ending}) as session:
            assert (session.exit_code(), session.stderr()) == (code, "no token")

    def test_floods_stderr(self, start: StartServer) -> None:
        with start(stderr_flood=300_000) as session:
            session.initialize()
            assert len(session.stderr()) == 300_000

    def test_starts_are_counted_and_can_differ(self, start: StartServer, tmp_path: Path) -> None:
        state_file = tmp_path / "state"
        scenario: dict[str, Any] = {
            "state_file": state_file,
            "faults": [{"crash": "before_answer"}],
            "by_start": {"2": {"faults": []}},
        }
        assert read_state(state_file).starts == 0
        with start(**scenario) as first:
            first.send_call("echo", {"text": "lost"})
            assert first.exit_code() == 1
        with start(**scenario) as second:
            assert second.call_for_text("start") == "2"
        state = read_state(state_file)
        assert state.pids == (first.process.pid, second.process.pid)
        assert state.calls == (RecordedCall(1, "echo", {"text": "lost"}), RecordedCall(2, "start", {}))
        assert state.ends == ("eof",)

    def test_a_record_that_a_kill_cut_short_spoils_no_other(self, start: StartServer, tmp_path: Path) -> None:
        state_file = tmp_path / "state"
        state_file.write_text('\n{"event": "start", "pid": 1}\n\n{"event": "call", "tool": "ec')
        with start(state_file=state_file) as session:
            assert session.call_for_text("start") == "2"
        assert read_state(state_file).starts == 2
        assert read_state(state_file).calls == (RecordedCall(2, "start", {}),)


class TestFaults:
    def test_a_crash_in_the_middle_of_a_line_at_the_second_call(self, start: StartServer) -> None:
        with start(faults=[{"tool": "echo", "nth": [2], "crash": "mid_line", "exit_code": 9}]) as session:
            assert echo(session) == "hello"
            session.send_call("echo", {"text": "never"})
            assert not session.remaining().endswith(b"\n")
            assert session.exit_code() == 9

    def test_a_crash_by_a_signal(self, start: StartServer) -> None:
        with start(faults=[{"crash": "before_answer", "signal": int(signal.SIGKILL)}]) as session:
            session.send_call("echo")
            assert session.exit_code() == -signal.SIGKILL

    def test_hanging_after_the_first(self, start: StartServer) -> None:
        with start(faults=[{"on": "tools/list", "after": 1, "hang": True}]) as session:
            assert session.request("tools/list")["result"]["tools"]
            session.send_request("tools/list")
            session.request("ping")
            assert session.others == []

    def test_freezing(self, start: StartServer, tmp_path: Path) -> None:
        with start(faults=[{"tool": "pid", "freeze": True}], state_file=tmp_path / "state") as session:
            session.send_call("pid")
            session.send_request("ping")
            session.send_call("echo")
            session.close_stdin()
            assert session.remaining() == b""
        assert [call.tool for call in read_state(tmp_path / "state").calls] == ["pid", "echo"]

    def test_junk(self, start: StartServer) -> None:
        junk = [{"text": "hi"}, {"hex": "ff fe"}, {"json": [1]}, {"size": 5}, {"text": "glued ", "newline": False}]
        with start(faults=[{"junk": junk}], line_ending="\r\n") as session:
            session.send_call("echo", {"text": "x"})
            lines = [session.receive_line() for _ in range(5)]
        assert lines[:4] == [b"hi\n", b"\xff\xfe\n", b"[1]\n", b"xxxxx\n"]
        assert lines[4].startswith(b'glued {"jsonrpc"')
        assert lines[4].endswith(b"}\r\n")

    def test_answers_twice_in_pieces(self, start: StartServer) -> None:
        with start(faults=[{"twice": True, "chunk_size": 7, "pause": 0.001}]) as session:
            session.send_call("echo", {"text": "x"})
            assert session.receive() == session.receive()

    def test_another_result_and_another_id(self, start: StartServer) -> None:
        with start(faults=[{"result": ["odd"], "answer_id": "strange"}]) as session:
            session.send_call("echo")
            assert session.receive() == {"jsonrpc": "2.0", "id": "strange", "result": ["odd"]}

    def test_answers_late(self, start: StartServer) -> None:
        with start(faults=[{"nth": [1], "await_cancel": True}, {"nth": [2], "delay": 0.05}]) as session:
            cancelled, delayed = session.send_call("echo"), session.send_call("echo")
            session.response_to(delayed)
            assert session.others == []
            session.notify("notifications/cancelled", {"requestId": cancelled})
            assert session.response_to(cancelled)["result"]

    def test_answers_in_reversed_order(self, start: StartServer) -> None:
        with start(reorder=3) as session:
            requests = [session.send_call("echo") for _ in range(3)]
            assert [session.receive()["id"] for _ in requests] == requests[::-1]

    def test_notifications_progress_and_changed_tools(self, start: StartServer) -> None:
        log = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
        fault = {"notifications": [log], "progress": [{"progress": 1}], "change_tools": [{"name": "new"}]}
        with start(faults=[fault]) as session:
            session.call("echo", {"text": "x"}, _meta={"progressToken": 5})
            assert session.others == [
                {"jsonrpc": "2.0", **log},
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 5, "progress": 1}},
                {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
            ]
            assert session.request("tools/list")["result"]["tools"][-1]["name"] == "new"

    def test_requests_to_the_client(self, start: StartServer) -> None:
        fault = {"on": "notifications/initialized", "server_requests": [{"method": "ping"}]}
        with start(faults=[fault]) as session:
            session.initialize()
            asked = session.send_call("client_answers")
            request = session.receive()
            assert request["method"] == "ping"
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {}}
            session.send(answer)
            text = session.response_to(asked)["result"]["content"][0]["text"]
            assert json.loads(text) == [answer]

    def test_stdout_is_closed(self, start: StartServer, tmp_path: Path) -> None:
        with start(faults=[{"close_stdout": True}], state_file=tmp_path / "state") as session:
            assert echo(session) == "hello"
            with pytest.raises(EOFError):
                session.receive()
            session.send_call("pid")
            session.close_stdin()
            assert session.exit_code() == 0
        assert [call.tool for call in read_state(tmp_path / "state").calls] == ["echo", "pid"]

    def test_stdin_is_not_read_any_more(self, start: StartServer) -> None:
        with start(faults=[{"stop_reading": True}]) as session:
            assert echo(session) == "hello"
            session.close_stdin()
            assert session.process.poll() is None
            session.process.kill()


@contextmanager
def grandchild_of(session: RawSession) -> Iterator[int]:
    with session:
        (pid,) = json.loads(session.call_for_text("children"))
        try:
            yield pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            assert wait_for_end(pid)


class TestProcess:
    def test_survives_the_end_of_input_and_sigterm(self, start: StartServer, tmp_path: Path) -> None:
        state_file = tmp_path / "state"
        with start(ignore_eof=True, ignore_sigterm=True, state_file=state_file) as session:
            session.initialize()
            session.process.terminate()
            session.request("ping")
            session.close_stdin()
            assert wait_until(lambda: read_state(state_file).ends == ("sigterm", "eof"))
            assert session.process.poll() is None
            session.process.kill()

    @pytest.mark.parametrize("child", ["same_group", "own_session", "daemon"])
    def test_has_a_grandchild(self, start: StartServer, tmp_path: Path, child: str) -> None:
        session = start(child=child, state_file=tmp_path / "state")
        with grandchild_of(session) as grandchild:
            assert read_state(tmp_path / "state").children == (grandchild,)
            assert (os.getpgid(grandchild) == os.getpgid(session.process.pid)) is (child == "same_group")
            assert (os.getsid(grandchild) == grandchild) is (child != "same_group")
            assert (psutil.Process(grandchild).ppid() == session.process.pid) is (child != "daemon")

    def test_its_grandchild_can_keep_its_pipes(self, start: StartServer) -> None:
        session = start(child="own_session", child_keeps_pipes=True)
        with grandchild_of(session) as grandchild:
            session.close_stdin()
            assert session.exit_code() == 0
            assert is_alive(grandchild)
            # Only now does stdout end.
            os.kill(grandchild, signal.SIGKILL)
            assert session.remaining() == b""
