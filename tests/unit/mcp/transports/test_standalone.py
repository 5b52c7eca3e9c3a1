"""A transport by itself: requests, their answers, and what becomes of them when the server ends."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gaia.mcp.errors import CallTimeout, NotConnected, Overloaded, ServerCrashed
from gaia.mcp.protocol.gateway_answers import NOT_SENT
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.stdio_channel import StdioChannel
from gaia.runtime.clock import SystemClock
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import call, posix
from tests.waiting import PATIENCE, wait_until


def has_no_reader(connection: Connection) -> bool:
    """Whether no process can read what is written to the server."""
    assert isinstance(connection.channel, StdioChannel)
    assert connection.channel._writer is not None
    poll = select.poll()
    poll.register(connection.channel._writer._descriptor, 0)
    return bool(poll.poll(0))


class TestStarting:
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
        assert not is_alive(grandchild)
        assert call(transport, "echo", text="x") == "x"


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

    def test_what_a_gateway_says_of_a_failure_stays_its_answer(self, start: Callable[..., StdioTransport]) -> None:
        data = {"server": "a", "errorType": "server_crashed", "delivery": "not_sent"}
        error = {"code": NOT_SENT, "message": "no", "data": data}
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
        with pytest.raises(
            RuntimeError, match=r"^Transport not connected: .*not running; call connect\(\) first"
        ) as error:
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
        assert wait_until(lambda: connection.unparsed.lines == 1)
        # The fork server closes its copy of the pipe in its own time.
        assert wait_until(lambda: has_no_reader(connection))
        with pytest.raises(ServerCrashed) as crash:
            transport.send_request("ping")
        assert crash.value.delivery == "not_sent"
        transport.disconnect()
