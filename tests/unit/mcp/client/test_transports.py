"""Servers as subprocesses: started without a shell, spoken to over pipes, and ended with all they started."""

from __future__ import annotations

import inspect
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.client.protocol.framing import OversizedLine
from gaia.mcp.client.protocol.messages import encode_request
from gaia.mcp.client.rpc.channel import Ending, Frame
from gaia.mcp.client.rpc.clock import SystemClock
from gaia.mcp.client.transports import ChannelTransport, MCPTransport, StdioTransport
from gaia.mcp.client.transports.command import argument_vector, split_command
from gaia.mcp.client.transports.environment import INHERITED
from gaia.mcp.client.transports.guard import MARK_VARIABLE
from gaia.mcp.client.transports.process import ServerProcess
from gaia.mcp.client.transports.stdio_channel import StdioChannel
from gaia.mcp.errors import CallTimeout, InvalidResponse, MCPError, NotConnected, Overloaded, ServerCrashed, StartFailed
from tests.servers.state_file import read_state
from tests.waiting import wait_until

Json = dict[str, Any]
Configure = Callable[..., Json]
MEGABYTE = 1024 * 1024
PATIENCE = 20.0
SECRET = "hunter2-hunter2"

posix = pytest.mark.skipif(os.name == "nt", reason="about process groups and signals")


def call(transport: StdioTransport, tool: str, **arguments: Any) -> Any:
    """The text that a tool of the fault server returns; decoded where it is JSON."""
    response = transport.send_request("tools/call", {"name": tool, "arguments": arguments})
    text = response["result"]["content"][0]["text"]
    return text if tool == "echo" else json.loads(text)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Listener:
    """What a channel tells, kept."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[bytes | OversizedLine] = queue.SimpleQueue()
        self.ended = threading.Event()

    def message_received(self, line: bytes | OversizedLine) -> None:
        self.lines.put(line)

    def channel_ended(self) -> None:
        self.ended.set()


def wait_until_serving(channel: StdioChannel, listener: Listener) -> None:
    """Return when the server answers, and its signal handlers are in place."""
    channel.send(Frame(encode_request(1, "ping", None)))
    listener.lines.get(timeout=PATIENCE)


@pytest.fixture
def start(fault_server: Configure) -> Iterator[Callable[..., StdioTransport]]:
    """Connect to a scripted server; `transport` are keywords for StdioTransport, all others make the scenario."""
    transports = []

    def start(transport: Json | None = None, **scenario: Any) -> StdioTransport:
        started = StdioTransport(**fault_server(**scenario), **(transport or {}))
        transports.append(started)
        assert started.connect()
        return started

    yield start
    for transport in transports:
        transport.disconnect()


@pytest.fixture
def open_channel(fault_server: Configure) -> Iterator[Callable[..., tuple[StdioChannel, Listener]]]:
    """Open a channel to a scripted server that is ready; the test closes it, or the fixture does."""
    channels = []

    def open_channel(**scenario: Any) -> tuple[StdioChannel, Listener]:
        listener = Listener()
        channel = StdioTransport(**fault_server(**scenario)).open(listener, "test")
        channels.append(channel)
        wait_until_serving(channel, listener)
        return channel, listener

    yield open_channel
    for channel in channels:
        channel.close(0.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers get little time to leave."""
    monkeypatch.setattr("gaia.mcp.client.transports.standalone._DEFAULT_GRACE", 0.1)
    monkeypatch.setattr("gaia.mcp.client.transports.process._TERMINATE_SECONDS", 0.1)


class TestInterface:
    def test_it_has_exactly_the_four_methods_of_the_specification(self) -> None:
        methods = {"connect", "disconnect", "send_request", "is_connected"}
        assert MCPTransport.__abstractmethods__ == methods
        assert {name for name, _ in inspect.getmembers(MCPTransport, inspect.isfunction)} == methods

    def test_it_cannot_be_instantiated_without_them(self) -> None:
        class Incomplete(MCPTransport):
            def connect(self) -> bool:
                return True

        with pytest.raises(TypeError, match="abstract"):
            Incomplete()  # type: ignore[abstract]

    def test_four_methods_are_enough(self) -> None:
        class Complete(MCPTransport):
            def connect(self) -> bool:
                return True

            def disconnect(self) -> None:
                return None

            def send_request(self, method: str, params: Json | None = None) -> Json:
                return {"result": {"method": method, "params": params}}

            def is_connected(self) -> bool:
                return True

        assert Complete().send_request("ping") == {"result": {"method": "ping", "params": None}}

    def test_stdio_is_one_and_can_be_supervised(self) -> None:
        assert issubclass(StdioTransport, ChannelTransport)
        assert issubclass(ChannelTransport, MCPTransport)

    def test_the_defaults_are_those_of_the_specification(self) -> None:
        transport = StdioTransport("server")
        assert (transport.command, transport.args, transport.env, transport.cwd) == ("server", None, None, None)
        assert (transport.timeout, transport.debug) == (30, False)
        assert transport._process is None

    def test_repr_shows_no_secrets(self) -> None:
        with_args = StdioTransport("/bin/server", ["--token", SECRET], env={"API_TOKEN": SECRET})
        with_line = StdioTransport(f"/bin/server --token {SECRET}")
        assert repr(with_args) == repr(with_line) == "StdioTransport('/bin/server', connected=False)"


class TestCommandLine:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("uvx mcp-server-time", ["uvx", "mcp-server-time"]),
            ("  npx   -y  server  ", ["npx", "-y", "server"]),
            ("npx server '/my files' \"/other files\"", ["npx", "server", "/my files", "/other files"]),
            (r"server /my\ files", ["server", "/my files"]),
            ("server ''", ["server", ""]),
            ("server --flag=#1 #2", ["server", "--flag=#1", "#2"]),
            ("server $HOME *.txt {a,b} ~", ["server", "$HOME", "*.txt", "{a,b}", "~"]),
            # Quoted or escaped, an operator is an argument like any other.
            ("server --separator '|' --end \";\"", ["server", "--separator", "|", "--end", ";"]),
            ("server --url='http://host/?a=1&b=2'", ["server", "--url=http://host/?a=1&b=2"]),
            (r"server a\|b", ["server", "a|b"]),
            ("server '$(date)' '`date`'", ["server", "$(date)", "`date`"]),
            (r'server "\$(date)"', ["server", r"\$(date)"]),
            ("""server "it's; fine" 'say "x"; ok'""", ["server", "it's; fine", 'say "x"; ok']),
        ],
    )
    @posix
    def test_it_is_split_as_a_shell_would(self, line: str, words: list[str]) -> None:
        assert argument_vector(line, None) == words

    @pytest.mark.parametrize(
        ("line", "operator"),
        [
            ("cd /srv && server", "&&"),
            ("server | tee log", "|"),
            ("server|tee", "|"),
            ("server; echo", ";"),
            ("server > log", ">"),
            ("server 2>&1", ">&"),
            ("server < input", "<"),
            ("server &", "&"),
            ("(server)", "("),
            ("server http://host/?a=1&b=2", "&"),
            ("server $(date)", "$("),
            ('server "$(date)"', "$("),
            ("server `date`", "`"),
            ('server "`date`"', "`"),
            ("server '#' | tee", "|"),
            ("server #1 | tee", "|"),
            ("server 'a' | 'b'", "|"),
        ],
    )
    def test_what_needs_a_shell_is_refused_with_the_form_that_does_not(self, line: str, operator: str) -> None:
        with pytest.raises(ValueError, match="without a shell") as refusal:
            StdioTransport(line)
        message = str(refusal.value)
        assert f"contains {operator!r}" in message
        assert '"args": [...]' in message
        assert '"command": "sh", "args": ["-c"' in message

    @pytest.mark.parametrize("line", ["", "   ", "\t\n"])
    def test_an_empty_one_is_refused(self, line: str) -> None:
        with pytest.raises(ValueError, match="the command is empty"):
            StdioTransport(line)

    @pytest.mark.parametrize("line", ["server 'unbalanced", 'server "', "server \\"])
    @posix
    def test_an_unbalanced_one_is_refused(self, line: str) -> None:
        with pytest.raises(ValueError, match="cannot be split into words"):
            StdioTransport(line)

    def test_with_args_nothing_is_split_and_nothing_is_forbidden(self) -> None:
        assert argument_vector("my server", ["a b", "|", "$(x)"]) == ["my server", "a b", "|", "$(x)"]
        assert argument_vector("my server", []) == ["my server"]

    @given(st.text())
    def test_no_line_makes_it_crash(self, line: str) -> None:
        try:
            words = split_command(line)
        except ValueError:
            return
        assert words


class TestStarting:
    @pytest.mark.process
    def test_it_runs_a_command_line(self, quick: None) -> None:
        transport = StdioTransport(f"{sys.executable} -I -S -c 'import time; time.sleep(300)'")
        assert transport.connect()
        assert transport.is_connected()
        transport.disconnect()

    def test_it_runs_once_however_often_it_is_connected(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        pid = call(transport, "pid")
        assert transport.connect()
        assert call(transport, "pid") == pid
        assert transport._process is not None
        assert transport._process.pid == pid

    def test_it_runs_anew_after_disconnecting(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        first = call(transport, "pid")
        transport.disconnect()
        assert not transport.is_connected()
        assert transport.connect()
        assert call(transport, "pid") != first

    def test_it_runs_anew_after_a_crash_and_leaves_nothing_of_the_old_server(
        self, start: Callable[..., StdioTransport], tmp_path: Path
    ) -> None:
        crash = [{"tool": "echo", "crash": "before_answer"}]
        state_file = tmp_path / "state"
        transport = start(faults=crash, child="own_session", state_file=state_file, by_start={"2": {"faults": []}})
        (grandchild,) = call(transport, "children")
        with pytest.raises(ServerCrashed):
            call(transport, "echo", text="x")
        assert not transport.is_connected()
        assert transport.connect()
        assert not is_running(grandchild)
        assert call(transport, "echo", text="x") == "x"

    @pytest.mark.parametrize(
        ("command", "reason"),
        [
            ("no-such-server-anywhere", "was not found on the"),
            ("./no/such/server", "does not exist"),
            ("/no/such/server", "/no/such/server does not exist"),
            ("~/server", "server does not exist"),
        ],
    )
    def test_a_command_that_is_not_there_is_no_connection_and_the_log_says_why(
        self, command: str, reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        transport = StdioTransport(command, [])
        assert transport.connect() is False
        assert transport.is_connected() is False
        assert reason in caplog.text

    def test_an_error_about_the_path_shows_only_its_beginning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", os.pathsep.join(f"/directory-{number}" for number in range(100)))
        with pytest.raises(StartFailed) as failure:
            StdioTransport("my-server").open(Listener(), "test")
        assert str(failure.value) == (
            "the command 'my-server' was not found on the server's PATH "
            "(/directory-0, /directory-1, /directory-2, …); install it, or give its full path as the command"
        )

    @posix
    def test_a_file_that_is_not_executable_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "server").write_text("#!/bin/sh\n")
        with pytest.raises(StartFailed, match=r"server is not executable"):
            StdioTransport(str(tmp_path / "server"), []).open(Listener(), "test")

    @pytest.mark.process
    @posix
    def test_an_executable_that_is_no_program_is_no_connection(self, tmp_path: Path) -> None:
        (tmp_path / "server").write_bytes(b"\x7fELF")
        (tmp_path / "server").chmod(0o700)
        with pytest.raises(StartFailed, match="could not be started"):
            StdioTransport(str(tmp_path / "server"), []).open(Listener(), "test")

    @pytest.mark.process
    @pytest.mark.parametrize("settings", [{"args": ["a\0b"]}, {"args": [], "env": {"A": "a\0b"}}, {"args": [5]}])
    def test_what_no_program_can_be_given_is_no_connection(self, settings: Json) -> None:
        assert StdioTransport(sys.executable, **settings).connect() is False

    def test_a_working_directory_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        with pytest.raises(StartFailed, match=f"the working directory {missing} does not exist"):
            StdioTransport(sys.executable, [], cwd=str(missing)).open(Listener(), "test")

    @pytest.mark.process
    @pytest.mark.parametrize("number", range(1, 5))
    def test_without_threads_there_is_no_connection_and_nothing_is_left(
        self, number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin, begun = threading.Thread.start, []

        def start(thread: threading.Thread) -> None:
            begun.append(thread.name)
            if len(begun) >= number:
                raise RuntimeError("can't start new thread")
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        transport = StdioTransport(sys.executable, ["-I", "-S", "-c", "import time; time.sleep(300)"])
        assert transport.connect() is False
        assert len(begun) == number


@pytest.mark.process
@posix
class TestFinding:
    """Each program prints the directory it was started in and its own name, as an answer to the first request."""

    PROGRAM = f"""#!{sys.executable} -IS
import json, os, sys
sys.stdin.readline()
print(json.dumps({{"jsonrpc": "2.0", "id": 1, "result": {{"cwd": os.getcwd(), "program": sys.argv[0]}}}}), flush=True)
sys.stdin.read()
"""

    @pytest.fixture
    def make_program(self) -> Callable[[Path], Path]:
        def make(path: Path) -> Path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.PROGRAM)
            path.chmod(0o700)
            return path

        return make

    def ask(self, transport: StdioTransport) -> Json:
        assert transport.connect()
        try:
            return dict(transport.send_request("where")["result"])
        finally:
            transport.disconnect()

    def test_on_our_path(
        self, make_program: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = make_program(tmp_path / "bin" / "my-server")
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        assert self.ask(StdioTransport("my-server"))["program"] == str(program)

    def test_on_the_path_that_is_configured_for_the_server(
        self, make_program: Callable[[Path], Path], tmp_path: Path
    ) -> None:
        program = make_program(tmp_path / "bin" / "my-server")
        assert self.ask(StdioTransport("my-server", env={"PATH": str(program.parent)}))["program"] == str(program)

    def test_a_relative_entry_of_the_path_starts_where_we_are(
        self, make_program: Callable[[Path], Path], tmp_path: Path
    ) -> None:
        program = make_program(tmp_path / "node_modules" / "my-server")
        (tmp_path / "elsewhere").mkdir()
        transport = StdioTransport("my-server", env={"PATH": "node_modules"}, cwd=str(tmp_path / "elsewhere"))
        assert self.ask(transport)["program"] == str(program)

    def test_in_the_home_directory(self, make_program: Callable[[Path], Path], home: Path) -> None:
        program = make_program(home / "bin" / "my-server")
        assert self.ask(StdioTransport("~/bin/my-server"))["program"] == str(program)

    @pytest.mark.parametrize("cwd", ["{tmp_path}/project", "project", "~/../project"])
    def test_relative_to_the_working_directory(
        self, make_program: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cwd: str
    ) -> None:
        (tmp_path / "home").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        program = make_program(tmp_path / "project" / "bin" / "my-server")
        answer = self.ask(StdioTransport("./bin/my-server", cwd=cwd.format(tmp_path=tmp_path)))
        assert answer["cwd"] == str(tmp_path / "project")
        assert os.path.samefile(answer["program"], program)


class TestEnvironment:
    def environment_of(self, transport: StdioTransport) -> dict[str, str]:
        environment: dict[str, str] = call(transport, "env")
        return environment

    @pytest.fixture(autouse=True)
    def our_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OUR_SECRET", SECRET)
        monkeypatch.setenv("LANG", "C.UTF-8")
        monkeypatch.setenv("TERM", "dumb")

    def test_a_server_inherits_what_programs_need_and_none_of_our_secrets(
        self, start: Callable[..., StdioTransport]
    ) -> None:
        environment = self.environment_of(start())
        assert SECRET not in environment.values()
        for name in ("PATH", "HOME", "LANG", "TERM"):
            assert environment[name] == os.environ[name]
        assert set(environment) <= {*INHERITED, MARK_VARIABLE}

    def test_it_inherits_everything_if_that_is_asked_for(self, start: Callable[..., StdioTransport]) -> None:
        environment = self.environment_of(start({"inherit_env": True}))
        assert os.environ.items() - {("PWD", "")} <= environment.items()

    def test_what_is_configured_comes_on_top(self, start: Callable[..., StdioTransport]) -> None:
        environment = self.environment_of(start({"env": {"API_TOKEN": SECRET, "LANG": "tlh"}}))
        assert (environment["API_TOKEN"], environment["LANG"]) == (SECRET, "tlh")

    def test_exported_shell_functions_are_code_and_stay_here(
        self, start: Callable[..., StdioTransport], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "() { echo pwned; }")
        assert "TERM" not in self.environment_of(start())

    def test_variables_are_expanded_anew_at_each_start(self, fault_server: Configure) -> None:
        configuration = fault_server()
        tokens = iter(["first", "second"])
        transport = StdioTransport(
            **configuration,
            expand=lambda: (configuration["args"], {"TOKEN": next(tokens)}, []),
            env={"TOKEN": "${TOKEN}"},
        )
        for expected in ("first", "second"):
            transport.connect()
            assert self.environment_of(transport)["TOKEN"] == expected
            transport.disconnect()
        assert transport.env == {"TOKEN": "${TOKEN}"}

    @posix
    def test_a_server_leads_a_session_and_group_of_its_own(self, start: Callable[..., StdioTransport]) -> None:
        """So that Ctrl-C in our terminal does not reach it."""
        pid = call(start(), "pid")
        assert os.getpgid(pid) == os.getsid(pid) == pid


class TestRequests:
    def test_a_result_comes_as_the_whole_response(self, start: Callable[..., StdioTransport]) -> None:
        assert start().send_request("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}

    def test_so_does_an_error(self, start: Callable[..., StdioTransport]) -> None:
        response = start().send_request("no/such/method", {"a": 1})
        assert response == {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": -32601, "message": "unknown method 'no/such/method'"},
        }

    def test_what_the_server_attached_to_an_error_is_kept(self, start: Callable[..., StdioTransport]) -> None:
        error = {"code": -32000, "message": "no", "data": {"why": [1, 2]}}
        assert start(faults=[{"on": "ping", "error": error}]).send_request("ping")["error"] == error

    def test_ids_are_never_reused(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        ids = [transport.send_request("ping")["id"] for _ in range(3)]
        transport.disconnect()
        transport.connect()
        ids.append(transport.send_request("ping")["id"])
        assert ids == [1, 2, 3, 4]
        assert transport._request_id == 4

    def test_many_threads_get_each_its_own_answers(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()

        def talk(thread: int) -> None:
            for number in range(25):
                assert call(transport, "echo", text=f"{thread}.{number}") == f"{thread}.{number}"

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(talk, range(8)))

    def test_answers_may_come_in_any_order(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(reorder=4)
        with ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda text: call(transport, "echo", text=text), "abcd"))
        assert texts == ["a", "b", "c", "d"]

    def test_silence_is_a_timeout_and_the_server_is_told(self, start: Callable[..., StdioTransport]) -> None:
        transport = start({"timeout": 0.2}, faults=[{"on": "hang", "hang": True}])
        with pytest.raises(TimeoutError, match=r"hang was not answered within 0\.2 s") as timeout:
            transport.send_request("hang")
        assert isinstance(timeout.value, CallTimeout)
        assert timeout.value.delivery == "unknown"
        cancelled = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1, "reason": "timeout"},
        }
        transport.timeout = PATIENCE
        assert cancelled in call(transport, "received")

    def test_a_late_answer_is_nobodys(self, start: Callable[..., StdioTransport]) -> None:
        transport = start({"timeout": 0.2}, faults=[{"on": "late", "await_cancel": True}])
        with pytest.raises(TimeoutError):
            transport.send_request("late")
        transport.timeout = PATIENCE
        assert call(transport, "echo", text="x") == "x"

    def test_an_interrupted_caller_leaves_nothing_under_way(
        self, start: Callable[..., StdioTransport], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transport = start(faults=[{"on": "hang", "hang": True}])

        def interrupt(*_: object) -> bool:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(SystemClock, "acquire", interrupt)
            with pytest.raises(KeyboardInterrupt):
                transport.send_request("hang")
        assert "notifications/cancelled" in [message["method"] for message in call(transport, "received")]

    def test_more_than_may_be_under_way_are_refused(self, start: Callable[..., StdioTransport]) -> None:
        transport = start({"max_pending": 2, "timeout": 30.0}, faults=[{"on": "hang", "hang": True}])
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(transport.send_request, "hang") for _ in range(2)]
            connection = transport._connection
            assert connection is not None
            assert wait_until(lambda: connection.in_flight == 2)
            with pytest.raises(Overloaded) as refusal:
                transport.send_request("hang")
            assert refusal.value.delivery == "not_sent"
            transport.disconnect()
            for future in waiting:
                with pytest.raises(RuntimeError, match="was disconnected"):
                    future.result(PATIENCE)

    def test_what_is_no_json_is_refused_before_anything_is_sent(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        with pytest.raises(ValueError, match="cannot be sent as JSON"):
            transport.send_request("m", {"a": object()})
        assert [message["method"] for message in call(transport, "received")] == ["tools/call"]

    def test_before_connecting_there_is_no_connection(self) -> None:
        with pytest.raises(RuntimeError, match=r"not running; call connect\(\) first") as error:
            StdioTransport("server").send_request("ping")
        assert isinstance(error.value, NotConnected)
        assert error.value.delivery == "not_sent"

    def test_nor_after_disconnecting_which_may_be_done_twice(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        transport.disconnect()
        transport.disconnect()
        with pytest.raises(RuntimeError, match="not running"):
            transport.send_request("ping")


class TestCrash:
    @pytest.mark.parametrize("moment", ["before_answer", "mid_line"])
    def test_a_crash_during_a_request_is_an_error_that_says_how_the_server_ended(
        self, start: Callable[..., StdioTransport], moment: str
    ) -> None:
        transport = start(faults=[{"tool": "echo", "crash": moment, "exit_code": 7, "stderr_flood": 160}])
        with pytest.raises(RuntimeError, match="the server ended during tools/call: exited with code 7") as crash:
            call(transport, "echo", text="x")
        assert isinstance(crash.value, ServerCrashed)
        assert crash.value.delivery == "unknown"
        assert "e" * 79 in str(crash.value), "its last words on stderr"

    @posix
    def test_a_signal_is_named(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"tool": "echo", "crash": "before_answer", "signal": int(signal.SIGSEGV)}])
        with pytest.raises(RuntimeError, match="killed by SIGSEGV"):
            call(transport, "echo", text="x")

    def test_all_that_were_under_way_fail(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"on": "hang", "hang": True}, {"on": "crash", "crash": "before_answer"}])
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(transport.send_request, "hang") for _ in range(3)]
            connection = transport._connection
            assert connection is not None
            assert wait_until(lambda: connection.in_flight == 3)
            with pytest.raises(ServerCrashed):
                transport.send_request("crash")
            for future in waiting:
                with pytest.raises(ServerCrashed):
                    future.result(PATIENCE)

    def test_an_answer_that_was_written_before_the_crash_counts(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"tool": "echo", "crash": "after_answer"}])
        assert call(transport, "echo", text="last words") == "last words"

    def test_after_a_crash_a_request_says_why_there_is_no_connection(
        self, start: Callable[..., StdioTransport]
    ) -> None:
        transport = start(faults=[{"tool": "echo", "crash": "after_answer", "exit_code": 3}])
        call(transport, "echo", text="x")
        assert wait_until(lambda: not transport.is_connected())
        with pytest.raises(RuntimeError, match="exited with code 3; call connect"):
            transport.send_request("ping")

    def test_a_server_that_closes_its_output_is_lost(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"on": "ping", "close_stdout": True}])
        transport.send_request("ping")
        with pytest.raises(RuntimeError, match=r"has ended|ended during"):
            transport.send_request("tools/list")
        assert not transport.is_connected()

    @pytest.mark.process
    @posix
    def test_a_request_that_found_the_input_closed_was_not_sent(self, quick: None) -> None:
        deaf = "import os, time; os.close(0); print('deaf', flush=True); time.sleep(300)"
        transport = StdioTransport(sys.executable, ["-I", "-S", "-c", deaf])
        assert transport.connect()
        connection = transport._connection
        assert connection is not None
        assert wait_until(lambda: connection.noise.lines == 1)
        with pytest.raises(ServerCrashed) as crash:
            transport.send_request("ping")
        assert crash.value.delivery == "not_sent"
        transport.disconnect()


class TestOutput:
    @pytest.mark.parametrize(
        "junk",
        [
            {"text": "Server listening on stdio"},
            {"text": "{"},
            {"hex": "ff fe 00 0d"},
            {"json": [1, 2]},
            {"json": {"jsonrpc": "2.0", "id": 99, "result": {}}},
            {"json": {"jsonrpc": "2.0", "id": True, "result": {}}},
            {"json": {"jsonrpc": "2.0", "id": "9" * 5000, "result": {}}},
            {"json": {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}},
            {"json": {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": [1]}}},
            {"size": 3 * MEGABYTE},
        ],
        ids=lambda junk: str(junk)[:50],
    )
    def test_junk_before_an_answer_does_not_harm_it(self, start: Callable[..., StdioTransport], junk: Json) -> None:
        transport = start(faults=[{"tool": "echo", "junk": [junk, junk]}])
        assert call(transport, "echo", text="x") == "x"
        assert call(transport, "echo", text="y") == "y"

    @pytest.mark.parametrize("depth", [900, 1000, 1020, 20_000])
    def test_deep_nesting_does_not_either(self, start: Callable[..., StdioTransport], depth: int) -> None:
        nested = "[" * depth + "]" * depth
        junk = [
            {"text": f'{{"jsonrpc":"2.0","id":null,"error":{nested}}}'},
            {"text": f'{{"jsonrpc":"2.0","id":99,"error":{{"code":1,"message":{nested}}}}}'},
        ]
        transport = start(faults=[{"tool": "echo", "junk": junk}])
        assert call(transport, "echo", text="x") == "x"

    @pytest.mark.parametrize("result", ["text", 5, [1], True])
    def test_a_result_that_is_no_object_is_invalid(self, start: Callable[..., StdioTransport], result: Any) -> None:
        transport = start(faults=[{"on": "ping", "result": result}])
        with pytest.raises(ValueError, match="the result of ping is not an object") as invalid:
            transport.send_request("ping")
        assert isinstance(invalid.value, InvalidResponse)

    def test_an_error_without_a_code_is_invalid(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"on": "ping", "error": {"message": "no"}}])
        with pytest.raises(ValueError, match="no integer code"):
            transport.send_request("ping")

    def test_an_answer_with_windows_line_ends_in_tiny_pieces(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(line_ending="\r\n", faults=[{"tool": "echo", "chunk_size": 3}])
        assert call(transport, "echo", text="größer") == "größer"

    def test_answers_that_come_twice_are_counted_once(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"tool": "echo", "twice": True}])
        assert [call(transport, "echo", text=text) for text in "abc"] == ["a", "b", "c"]

    def test_an_id_that_comes_back_as_a_string_is_understood(self, start: Callable[..., StdioTransport]) -> None:
        transport = start(faults=[{"on": "ping", "answer_id": "1"}])
        assert transport.send_request("ping")["result"] == {}

    def test_a_request_of_the_server_is_answered(self, start: Callable[..., StdioTransport]) -> None:
        requests = [{"method": "ping"}, {"method": "sampling/createMessage", "params": {}}]
        transport = start(faults=[{"on": "ask", "server_requests": requests}])
        transport.send_request("ask")
        pong, refusal = call(transport, "client_answers")
        assert pong == {"jsonrpc": "2.0", "id": "server-1", "result": {}}
        assert (refusal["id"], refusal["error"]["code"]) == ("server-2", -32601)

    @pytest.mark.parametrize("size", [100_000, 8 * MEGABYTE])
    def test_large_messages_go_both_ways(self, start: Callable[..., StdioTransport], size: int) -> None:
        transport = start()
        text = "ä" * (size // 2)
        assert call(transport, "echo", text=text) == text

    def test_several_large_messages_at_once(self, start: Callable[..., StdioTransport]) -> None:
        transport = start()
        with ThreadPoolExecutor(4) as pool:
            texts = [letter * MEGABYTE for letter in "abcd"]
            assert list(pool.map(lambda text: call(transport, "echo", text=text), texts)) == texts

    def test_an_answer_over_the_limit_fails_only_its_own_call(self, start: Callable[..., StdioTransport]) -> None:
        transport = start({"max_message_bytes": 100_000})
        with pytest.raises(ValueError, match=r"the answer is 1\d{5} bytes long"):
            call(transport, "echo", text="x" * 100_000)
        assert call(transport, "echo", text="short") == "short"


class TestStderr:
    def test_a_flood_blocks_nobody(self, start: Callable[..., StdioTransport]) -> None:
        flood = 8 * MEGABYTE
        transport = start(stderr_flood=flood, faults=[{"tool": "echo", "stderr_flood": flood}])
        assert call(transport, "echo", text="x") == "x"

    def test_its_end_is_told_with_the_secrets_masked(self, fault_server: Configure) -> None:
        stderr = f"first line\nTraceback: bad token {SECRET}\n"
        server = fault_server(exit_at_start={"code": 3, "stderr": stderr})
        listener = Listener()
        channel = StdioTransport(**server, env={"API_TOKEN": SECRET}).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        expected = Ending(exit_code=3, stderr_tail="first line\nTraceback: bad token ***")
        assert channel.ending(PATIENCE) == expected
        assert str(expected) == ("exited with code 3; it last wrote on stderr:\nfirst line\nTraceback: bad token ***")
        assert channel.close(0.0) == expected

    def test_it_goes_to_the_log_with_the_secrets_masked(
        self, fault_server: Configure, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, logger="gaia")
        server = fault_server(exit_at_start={"stderr": f"started with {SECRET}"})
        transport = StdioTransport(**server, env={"API_TOKEN": SECRET})
        transport.connect()
        assert wait_until(lambda: "started with ***" in caplog.text)
        transport.disconnect()
        assert SECRET not in caplog.text


class TestEnding:
    @pytest.mark.parametrize("waitid", [True, False], ids=["waitid", "no waitid"])
    @pytest.mark.parametrize(
        ("exit_at_start", "ending", "text"),
        [
            ({"code": 0}, Ending(exit_code=0), "exited with code 0"),
            ({"code": 42}, Ending(exit_code=42), "exited with code 42"),
            pytest.param({"signal": 9}, Ending(signal="SIGKILL"), "was killed by SIGKILL", marks=posix),
        ],
    )
    def test_it_says_how_the_process_ended(
        self,
        fault_server: Configure,
        monkeypatch: pytest.MonkeyPatch,
        waitid: bool,
        exit_at_start: Json,
        ending: Ending,
        text: str,
    ) -> None:
        """Without waitid (macOS before Python 3.13), too."""
        if not waitid:
            monkeypatch.delattr(os, "waitid", raising=False)
        listener = Listener()
        channel = StdioTransport(**fault_server(exit_at_start=exit_at_start)).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        assert channel.ending(PATIENCE) == ending
        assert channel.close(0.0) == ending
        assert str(ending) == text
        assert ending.clean is (ending.exit_code == 0)

    def test_there_is_none_while_the_server_runs(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]]
    ) -> None:
        channel, _ = open_channel()
        assert channel.ending(0.0) is None
        assert channel.is_alive()

    @posix
    def test_it_is_unknown_if_the_application_reaps_our_children(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: object) -> None:
            raise ChildProcessError

        monkeypatch.setattr(os, "waitid", gone)
        channel, listener = open_channel(exit_at_start=None)
        assert listener.ended.wait(PATIENCE)
        assert channel.close(0.0) == Ending()
        assert str(Ending()) == "closed its output"

    def test_all_that_was_written_before_the_end_was_delivered_when_it_is_told(self, fault_server: Configure) -> None:
        listener = Listener()
        script = "import os; os.write(1, b'x' * 60000 + b'\\n' + b'last'); os.write(2, b'last words'); os._exit(1)"
        channel = StdioTransport(sys.executable, ["-I", "-S", "-c", script]).open(listener, "test")
        ending = channel.ending(PATIENCE)
        assert ending == Ending(exit_code=1, stderr_tail="last words")
        assert [listener.lines.get_nowait() for _ in range(2)] == [b"x" * 60000, b"last"]
        channel.close(0.0)


class TestShutdown:
    """The sequence of the specification: end of input, SIGTERM, SIGKILL."""

    def test_a_good_server_leaves_at_the_end_of_its_input(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], tmp_path: Path
    ) -> None:
        channel, _ = open_channel(state_file=tmp_path / "state")
        assert channel.close(PATIENCE) == Ending(exit_code=0)
        assert read_state(tmp_path / "state").ends == ("eof",)

    @posix
    def test_one_that_stays_is_sent_sigterm_after_its_grace(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], tmp_path: Path
    ) -> None:
        channel, _ = open_channel(ignore_eof=True, state_file=tmp_path / "state")
        assert channel.close(0.1) == Ending(signal="SIGTERM")

    @posix
    def test_one_that_survives_sigterm_is_killed(
        self, quick: None, open_channel: Callable[..., tuple[StdioChannel, Listener]], tmp_path: Path
    ) -> None:
        state_file = tmp_path / "state"
        channel, _ = open_channel(ignore_eof=True, ignore_sigterm=True, state_file=state_file)
        assert channel.close(0.1) == Ending(signal="SIGKILL")
        assert read_state(state_file).ends[-1] == "sigterm"

    @posix
    def test_one_that_has_been_stopped_hears_sigterm_all_the_same(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]]
    ) -> None:
        channel, _ = open_channel()
        assert channel.pid is not None
        os.kill(channel.pid, signal.SIGSTOP)
        assert channel.close(0.1) == Ending(signal="SIGTERM")

    def test_the_time_between_is_what_the_specification_wants(self) -> None:
        from gaia.mcp.client.transports import process, standalone

        assert process._TERMINATE_SECONDS == 5.0
        assert standalone._DEFAULT_GRACE == 2.0

    def test_one_that_has_ended_already_is_only_cleaned_up_after(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]]
    ) -> None:
        channel, listener = open_channel()
        channel.popen.kill()
        assert listener.ended.wait(PATIENCE)
        began = time.monotonic()
        channel.close(PATIENCE)
        assert time.monotonic() - began < PATIENCE

    @pytest.mark.parametrize("keeps_pipes", [False, True], ids=["", "holding the pipes"])
    @pytest.mark.parametrize("child", ["same_group", "own_session", "daemon"])
    @posix
    def test_what_it_started_ends_with_it(
        self, start: Callable[..., StdioTransport], child: str, keeps_pipes: bool
    ) -> None:
        transport = start(child=child, child_keeps_pipes=keeps_pipes)
        (pid,) = call(transport, "children")
        assert is_running(pid)
        transport.disconnect()
        assert not is_running(pid)

    @posix
    def test_so_does_what_only_starts_while_the_others_are_ended(
        self, open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        channel, _ = open_channel(child="own_session")
        late: list[subprocess.Popen[bytes]] = []
        look = ServerProcess._strays

        def look_and_start(process: ServerProcess) -> list[psutil.Process]:
            found = look(process)
            if not late:
                environment = psutil.Process(found[0].pid).environ()
                sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
                late.append(subprocess.Popen(sleeper, env=environment, start_new_session=True))
            return found

        monkeypatch.setattr(ServerProcess, "_strays", look_and_start)
        channel.close(PATIENCE)
        assert not is_running(late[0].pid)
        late[0].wait()

    @posix
    def test_a_crash_is_noticed_although_a_child_holds_the_output_open(
        self, start: Callable[..., StdioTransport]
    ) -> None:
        transport = start(
            child="own_session", child_keeps_pipes=True, faults=[{"tool": "echo", "crash": "before_answer"}]
        )
        with pytest.raises(ServerCrashed, match="exited with code 1"):
            call(transport, "echo", text="x")

    @posix
    def test_closing_does_not_wait_for_ever_for_what_cannot_be_killed(
        self,
        open_channel: Callable[..., tuple[StdioChannel, Listener]],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Another user's process, say, that got the server's output. Its readers end when it does."""
        channel, _ = open_channel(child="own_session", child_keeps_pipes=True)
        assert channel.pid is not None
        (survivor,) = psutil.Process(channel.pid).children()
        monkeypatch.setattr("gaia.mcp.client.transports.stdio_channel._JOIN_SECONDS", 0.1)
        monkeypatch.setattr(ServerProcess, "_end_strays", lambda _: None)
        stdout = channel.popen.stdout
        assert stdout is not None
        channel.close(PATIENCE)
        assert "output_still_open" in caplog.text
        assert not stdout.closed, "or the reader would read from whatever opens next"
        survivor.kill()
        assert wait_until(lambda: stdout.closed)


class TestWedged:
    """A server that reads no more."""

    @pytest.fixture
    def wedged(self, quick: None, start: Callable[..., StdioTransport]) -> StdioTransport:
        transport = start(faults=[{"on": "ping", "stop_reading": True}])
        transport.send_request("ping")
        transport.timeout = 0.3
        return transport

    def test_callers_time_out_on_time(self, wedged: StdioTransport) -> None:
        def request(number: int) -> tuple[float, MCPError]:
            began = time.monotonic()
            with pytest.raises(TimeoutError) as timeout:
                wedged.send_request("large", {"number": number, "text": "x" * MEGABYTE})
            assert isinstance(timeout.value, MCPError)
            return time.monotonic() - began, timeout.value

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(request, range(8)))
        assert all(elapsed >= 0.3 for elapsed, _ in outcomes)
        assert max(elapsed for elapsed, _ in outcomes) < 10.0
        sent = [error.delivery for _, error in outcomes].count("unknown")
        assert sent < 8, "most of them never began to leave"

    def test_it_can_be_disconnected(self, wedged: StdioTransport) -> None:
        with pytest.raises(TimeoutError):
            wedged.send_request("large", {"text": "x" * 4 * MEGABYTE})
        wedged.disconnect()
        assert not wedged.is_connected()
