"""The interface that applications implement, and the wider one that can be supervised."""

from __future__ import annotations

import copy
import inspect
import select
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx2
import pytest

from gaia.mcp import ConfigError, MCPConfig
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import CallTimeout, NotConnected, Overloaded, ServerCrashed
from gaia.mcp.protocol.gateway_answers import NOT_SENT
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.transports import ChannelTransport, MCPTransport, StdioTransport
from gaia.mcp.transports.base import Authorization, InProcessServer
from gaia.mcp.transports.http import HttpTransport
from gaia.mcp.transports.stdio_channel import StdioChannel
from gaia.runtime.clock import SystemClock
from tests.fake_transport import FakeTransport
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Json, Start, call, posix
from tests.waiting import PATIENCE, wait_until


class TestInterface:
    def test_it_has_exactly_the_four_methods_of_the_specification(self) -> None:
        methods = {"connect", "disconnect", "send_request", "is_connected"}
        assert MCPTransport.__abstractmethods__ == methods
        assert {name for name, _ in inspect.getmembers(MCPTransport, inspect.isfunction)} == methods
        assert ChannelTransport.__abstractmethods__ == {*methods, "open"}
        assert issubclass(StdioTransport, ChannelTransport)
        assert issubclass(ChannelTransport, MCPTransport)

    def test_four_methods_are_enough(self) -> None:
        class Incomplete(MCPTransport):
            def connect(self) -> bool:
                return True

            def disconnect(self) -> None:
                return None

            def is_connected(self) -> bool:
                return True

        class Complete(Incomplete):
            def send_request(self, method: str, params: Json | None = None) -> Json:
                return {"result": {"method": method, "params": params}}

        with pytest.raises(TypeError, match="abstract"):
            Incomplete()  # type: ignore[abstract]
        assert Complete().send_request("ping") == {"result": {"method": "ping", "params": None}}

    def test_an_application_s_own_has_no_address_and_no_login_unless_it_says_so(self) -> None:
        assert FakeTransport().network == {"network.transport": "pipe"}
        assert FakeTransport().authorization is None


# What a transport takes for a login that can be supervised.


class Login(httpx2.Auth):
    """Puts a token on requests, and can be supervised."""

    interactive = False
    secrets = ("token-1",)

    def changed(self) -> bool:
        return True

    def log_in(self) -> None:
        raise AssertionError("nobody asks for it")

    def abort(self) -> None:
        raise AssertionError("there is no login under way")

    def reopen(self) -> None:
        raise AssertionError("nothing was aborted")


@pytest.mark.parametrize(
    ("auth", "is_supervised"),
    [(Login(), True), (None, False), (httpx2.BasicAuth("me", "password"), False), (partial(Login), False)],
)
def test_only_a_login_with_all_parts_is_supervised(auth: httpx2.Auth | None, is_supervised: bool) -> None:
    assert HttpTransport("http://host/", auth=auth).authorization is (auth if is_supervised else None)


@pytest.mark.parametrize("part", ["interactive", "secrets", "changed", "log_in", "abort", "reopen"])
def test_a_login_without_one_of_the_parts_is_none(part: str) -> None:
    parts = {name: value for name, value in vars(Login).items() if name != part and not name.startswith("__")}
    assert isinstance(Login(), Authorization)
    assert not isinstance(type("Incomplete", (), parts)(), Authorization)


def has_no_reader(connection: Connection) -> bool:
    """Whether no process can read what is written to the server."""
    assert isinstance(connection.channel, StdioChannel)
    assert connection.channel._writer is not None
    poll = select.poll()
    poll.register(connection.channel._writer._descriptor, 0)
    return bool(poll.poll(0))


class TestStarting:
    def test_it_runs_once_however_often_it_is_connected_and_anew_after_disconnecting(self, start: Start) -> None:
        transport = start()
        pid = call(transport, "pid")
        assert transport.connect()
        assert call(transport, "pid") == pid
        assert transport._process is not None
        assert transport._process.pid == pid
        transport.disconnect()
        assert not transport.is_connected()
        assert transport.connect()
        assert call(transport, "pid") != pid

    def test_it_runs_anew_after_a_crash_and_leaves_nothing_of_the_old_server(
        self, start: Start, tmp_path: Path
    ) -> None:
        crash = [{"tool": "echo", "crash": "before_answer"}]
        state_file = tmp_path / "state"
        transport = start(faults=crash, child="own_session", state_file=state_file, by_start={"2": {"faults": []}})
        (grandchild,) = call(transport, "children")
        with pytest.raises(ServerCrashed):
            call(transport, "echo", text="x")
        assert not transport.is_connected()
        assert transport.connect()
        assert not is_alive(grandchild)
        assert call(transport, "echo", text="x") == "x"


class TestRequests:
    @pytest.mark.parametrize(
        "outcome",
        [
            {"result": {}},
            {"error": {"code": -32601, "message": "unknown method"}},
            {"error": {"code": -32000, "message": "no", "data": {"why": [1, 2]}}},
            {"error": {"code": NOT_SENT, "message": "no", "data": {"server": "a", "errorType": "server_crashed"}}},
        ],
        ids=["a result", "an error", "an error with data", "what a gateway says of a failure"],
    )
    def test_all_that_the_server_said_is_the_response(self, start: Start, outcome: Json) -> None:
        transport = start(faults=[{"on": "ping", **outcome}])
        assert transport.send_request("ping", {"a": 1}) == {"jsonrpc": "2.0", "id": 1, **outcome}

    def test_ids_are_never_reused(self, start: Start) -> None:
        transport = start()
        ids = [transport.send_request("ping")["id"] for _ in range(3)]
        transport.disconnect()
        transport.connect()
        ids.append(transport.send_request("ping")["id"])
        assert ids == [1, 2, 3, 4]
        assert transport._request_id == 4

    def test_many_threads_get_each_its_own_answers(self, start: Start) -> None:
        transport = start()

        def talk(thread: int) -> None:
            for number in range(25):
                assert call(transport, "echo", text=f"{thread}.{number}") == f"{thread}.{number}"

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(talk, range(8)))

    def test_silence_is_a_timeout_the_server_is_told_and_a_late_answer_is_nobodys(self, start: Start) -> None:
        transport = start({"timeout": 0.2}, faults=[{"on": "late", "await_cancel": True}])
        with pytest.raises(TimeoutError, match=r"late was not answered within 0\.2 s") as timeout:
            transport.send_request("late")
        assert isinstance(timeout.value, CallTimeout)
        assert timeout.value.delivery == "unknown"
        params = {"requestId": 1, "reason": "timeout"}
        transport.timeout = PATIENCE
        assert call(transport, "echo", text="x") == "x"
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert cancelled in call(transport, "received")

    def test_an_interrupted_caller_leaves_nothing_under_way(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transport = start(faults=[{"on": "hang", "hang": True}])

        def interrupt(*_: object) -> bool:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(SystemClock, "acquire", interrupt)
            with pytest.raises(KeyboardInterrupt):
                transport.send_request("hang")
        assert "notifications/cancelled" in [message["method"] for message in call(transport, "received")]

    def test_more_than_may_be_under_way_are_refused(self, start: Start) -> None:
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

    def test_what_is_no_json_is_refused_before_anything_is_sent(self, start: Start) -> None:
        transport = start()
        with pytest.raises(ValueError, match="cannot be sent as JSON"):
            transport.send_request("m", {"a": object()})
        assert [message["method"] for message in call(transport, "received")] == ["tools/call"]

    def test_before_connecting_there_is_no_connection_nor_after_disconnecting_which_may_be_done_twice(
        self, start: Start
    ) -> None:
        ended = start()
        ended.disconnect()
        ended.disconnect()
        for transport in (StdioTransport("server"), ended):
            with pytest.raises(
                RuntimeError, match=r"^Transport not connected: .*not running; call connect\(\) first"
            ) as error:
                transport.send_request("ping")
            assert isinstance(error.value, NotConnected)
            assert error.value.delivery == "not_sent"


class TestCrash:
    @pytest.mark.parametrize("moment", ["before_answer", "mid_line"])
    def test_a_crash_during_a_request_is_an_error_that_says_how_the_server_ended(
        self, start: Start, moment: str
    ) -> None:
        transport = start(faults=[{"tool": "echo", "crash": moment, "exit_code": 7, "stderr_flood": 160}])
        with pytest.raises(RuntimeError, match="the server ended during tools/call: exited with code 7") as crash:
            call(transport, "echo", text="x")
        assert isinstance(crash.value, ServerCrashed)
        assert crash.value.delivery == "unknown"
        assert "e" * 79 in str(crash.value), "its last words on stderr"

    @posix
    def test_a_signal_is_named(self, start: Start) -> None:
        transport = start(faults=[{"tool": "echo", "crash": "before_answer", "signal": int(signal.SIGSEGV)}])
        with pytest.raises(RuntimeError, match="killed by SIGSEGV"):
            call(transport, "echo", text="x")

    def test_all_that_were_under_way_fail(self, start: Start) -> None:
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

    def test_an_answer_that_was_written_before_the_crash_counts(self, start: Start) -> None:
        transport = start(faults=[{"tool": "echo", "crash": "after_answer"}])
        assert call(transport, "echo", text="last words") == "last words"

    def test_after_a_crash_a_request_says_why_there_is_no_connection(self, start: Start) -> None:
        transport = start(faults=[{"tool": "echo", "crash": "after_answer", "exit_code": 3}])
        call(transport, "echo", text="x")
        assert wait_until(lambda: not transport.is_connected())
        with pytest.raises(RuntimeError, match="exited with code 3; call connect"):
            transport.send_request("ping")

    def test_a_server_that_closes_its_output_is_lost(self, start: Start) -> None:
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
        assert wait_until(lambda: connection.unparsed.lines == 1)
        # The fork server closes its copy of the pipe in its own time.
        assert wait_until(lambda: has_no_reader(connection))
        with pytest.raises(ServerCrashed) as crash:
            transport.send_request("ping")
        assert crash.value.delivery == "not_sent"
        transport.disconnect()


class Server(InProcessServer):
    def transport(self, timeout: float) -> ChannelTransport:
        return FakeTransport(timeout)


def test_it_is_its_own_entry_and_equals_itself_alone() -> None:
    server, other = Server(), Server()
    assert dict(server) == {"inProcess": server}
    assert {**server, "timeout": 5} == {"inProcess": server, "timeout": 5}
    assert (len(server), list(server), "command" in server) == (1, ["inProcess"], False)
    with pytest.raises(KeyError):
        server["command"]
    assert server == server["inProcess"] == {"inProcess": server}
    assert {"inProcess": server} == server
    assert server != other
    assert {"inProcess": server} != {"inProcess": other}
    assert server != {"inProcess": server, "timeout": 5}
    assert len({server, other}) == 2
    assert copy.deepcopy({"time": {**server}})["time"]["inProcess"] is server


def test_a_configuration_in_memory_keeps_it_and_its_further_keys_must_be_json() -> None:
    server = Server()
    config = MCPConfig.in_memory({"time": server, "other": {**server, "timeout": 5, "args": ("a",)}})
    assert config.get_servers() == {
        "time": {"inProcess": server},
        "other": {"inProcess": server, "timeout": 5, "args": ["a"]},
    }
    assert (config.problems, config.warnings) == ({}, [])
    assert ServerConfig.from_dict("time", server).transport == "in-process"
    with pytest.raises(ConfigError, match="server 'time': the config dict cannot be saved as JSON"):
        MCPConfig.in_memory({"time": {**Server(), "env": object()}})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        *(
            ({**Server(), key: value}, "inProcess: the server lives in this program; remove command, url and type")
            for key, value in {"command": "uvx", "url": "https://example.com", "type": "http"}.items()
        ),
        ({**Server(), "sandbox": True}, "sandbox: only a server with a command can be started in one; this one lives"),
        (
            {**Server(), "maxMemory": "1G"},
            "maxMemory: only for a server with a command; this one lives",
        ),
        ({"inProcess": {"name": "time"}}, "inProcess: expected a server object, which no file can hold, got an object"),
    ],
)
def test_what_belongs_to_other_servers_is_refused(entry: Json, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_dict("time", entry)
    assert f"server 'time': {problem}" in str(caught.value)
