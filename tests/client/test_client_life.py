"""The life of a client: connecting, restarting, disconnecting, and what it says of itself meanwhile."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import CallCancelled
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.mcp.supervision.events import Event, Restarted, ServerLog, ServerState, StateChanged, ToolsChanged
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.transports.stdio import StdioTransport
from tests.recorder import Recorder
from tests.servers.answers import received, text
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Server = Callable[..., Json]
Connect = Callable[..., MCPClient]

QUICK = {"initialDelay": 0.01, "maxDelay": 0.01}
"""A restart policy for tests that wait for real restarts."""


class TestConnecting:
    def test_a_server_is_ready_with_its_tools_and_what_it_says(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(instructions="Be gentle."))
        assert client.is_connected()
        assert client.server_info == {"name": "fault-server", "version": "1"}
        assert client.protocol_version == HANDSHAKE_REVISIONS[0]
        assert client.instructions == "Be gentle."
        assert client.capabilities == {"tools": {"listChanged": True}}
        assert "echo" in [tool.name for tool in client.list_tools()]
        assert [message["method"] for message in received(client)] == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
        ]

    @pytest.mark.parametrize("version", HANDSHAKE_REVISIONS)
    def test_any_revision_of_ours_is_accepted(self, fault_server: Server, connect: Connect, version: str) -> None:
        assert connect(fault_server(protocol_version=version)).protocol_version == version

    @pytest.mark.parametrize(
        ("exit_at_start", "words"),
        [
            ({"code": 3, "stderr": "no such module"}, ["exited with code 3", "no such module"]),
            ({"signal": signal.SIGKILL, "stderr": "help"}, ["killed by SIGKILL", "help"]),
            ({"code": 0}, ["exited with code 0"]),
        ],
    )
    def test_a_server_that_ends_at_once_is_reported_in_full_and_not_retried(
        self, fault_server: Server, tmp_path: Path, exit_at_start: Json, words: list[str]
    ) -> None:
        client = MCPClient.from_config(
            "fault", fault_server(exit_at_start=exit_at_start, state_file=tmp_path / "state")
        )
        assert client.connect() is False
        assert all(word in str(client.last_error) for word in words)
        assert client.state is ServerState.FAILED
        assert not client.is_connected()
        # Once with the probe, once greeted as servers are that do not survive the probe.
        assert read_state(tmp_path / "state").starts == 2

    def test_a_command_that_does_not_exist(self) -> None:
        client = MCPClient.from_config("fault", {"command": "no-such-program-anywhere"})
        assert client.connect() is False
        assert "no-such-program-anywhere" in str(client.last_error)

    def test_a_variable_that_is_not_set_is_an_error_of_connect(self, fault_server: Server) -> None:
        client = MCPClient.from_config("fault", {**fault_server(), "env": {"TOKEN": "${SURELY_NOT_SET}"}})
        assert client.connect() is False
        assert "SURELY_NOT_SET" in str(client.last_error)

    def test_a_silent_handshake_ends_with_the_time_for_starts(self, fault_server: Server) -> None:
        config = fault_server(faults=[{"on": "initialize", "hang": True}])
        client = MCPClient.from_config("fault", {**config, "startTimeout": 0.2})
        assert client.connect() is False
        assert "initialize" in str(client.last_error)


class TestDisconnecting:
    def test_the_server_and_what_it_started_are_gone(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(child="own_session"))
        pids = [client.status.pid, *json.loads(text(client.call_tool("children")))]
        client.disconnect()
        assert not any(is_alive(pid) for pid in pids)
        assert not client.is_connected()
        assert client.state is ServerState.CLOSED
        assert client.status.pid is None
        assert client.list_tools() == []

    def test_it_is_harmless_before_connecting_and_twice(self, fault_server: Server) -> None:
        client = MCPClient.from_config("fault", fault_server())
        client.disconnect()
        assert client.connect()
        client.disconnect()
        client.disconnect()

    def test_calls_after_it_raise(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        client.disconnect()
        with pytest.raises(RuntimeError, match="Not connected"):
            client.call_tool("echo", {"text": "hi"})
        with pytest.raises(RuntimeError, match="Not connected"):
            client.submit_tool("echo", {"text": "hi"})
        with pytest.raises(RuntimeError, match="Not connected"):
            client.request("ping")

    def test_at_any_moment_of_connecting_it_is_prompt(self, fault_server: Server) -> None:
        config = fault_server(faults=[{"on": "initialize", "hang": True}])
        for _ in range(10):
            client = MCPClient.from_config("fault", config)
            with ThreadPoolExecutor(1) as threads:
                connected = threads.submit(client.connect)
                # Whether it comes too early to have an effect, or at whatever moment: the next one does have one.
                while not connected.done():
                    client.disconnect()
                assert connected.result() is False
            assert client.status.pid is None

    def test_a_listener_may_do_it(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        done = threading.Event()

        def listener(event: Event) -> None:
            if isinstance(event, ServerLog):
                client.disconnect()
                done.set()

        client.subscribe(listener)
        config = {"method": "notifications/message", "params": {"level": "info", "data": "leave"}}
        client._engine.happened(ServerLog("fault", "info", None, config))
        assert done.wait(PATIENCE)
        assert client.state is ServerState.CLOSED

    def test_a_future_may_do_it(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        done = threading.Event()
        future = client.submit_tool("echo", {"text": "hi"})
        future.add_done_callback(lambda _: client.disconnect())
        future.add_done_callback(lambda _: done.set())
        assert done.wait(PATIENCE)
        assert client.state is ServerState.CLOSED

    def test_a_context_manager_does_it(self, fault_server: Server) -> None:
        with MCPClient.from_config("fault", fault_server()) as client:
            pid = client.status.pid
            assert pid is not None
        assert not is_alive(pid)

    def test_entering_a_client_that_cannot_connect_raises_with_the_reason(self) -> None:
        client = MCPClient.from_config("fault", {"command": "no-such-program-anywhere"})
        with pytest.raises(RuntimeError, match="no-such-program-anywhere"), client:
            raise AssertionError("not reached")


class TestRestarting:
    def test_a_crash_is_survived(self, fault_server: Server, connect: Connect, tmp_path: Path) -> None:
        config = fault_server(
            faults=[{"tool": "echo", "crash": "mid_line", "signal": signal.SIGKILL}],
            state_file=tmp_path / "state",
            by_start={"2": {"faults": [], "tools": [{"name": "new"}]}},
        )
        client = connect(config, restart=QUICK)
        events = Recorder()
        client.subscribe(events)
        outcome = client.call_tool("echo", {"text": "hi"})
        assert outcome["error_type"] == "server_crashed"
        assert "SIGKILL" in outcome["error"]
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
        events.wait_for(Restarted, generation=2)
        assert "new" in [tool.name for tool in client.list_tools()]
        status = client.status
        state = read_state(tmp_path / "state")
        assert (status.generation, status.restarts, status.pid) == (2, 1, state.pids[1])
        assert [(call.start, call.tool) for call in state.calls] == [(1, "echo"), (2, "echo")]

    def test_an_idle_server_that_leaves_is_started_by_the_next_call(
        self, fault_server: Server, connect: Connect, tmp_path: Path
    ) -> None:
        config = fault_server(
            faults=[{"tool": "echo", "nth": [1], "crash": "after_answer", "exit_code": 0}],
            state_file=tmp_path / "state",
            by_start={"2": {"faults": []}},
        )
        client = connect(config)
        events = Recorder()
        client.subscribe(events)
        assert text(client.call_tool("echo", {"text": "bye"})) == "bye"
        events.wait_for(StateChanged, new=ServerState.EXITED)
        assert not client.is_connected()
        assert text(client.call_tool("echo", {"text": "hello again"})) == "hello again"
        assert read_state(tmp_path / "state").starts == 2

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            pytest.param({"close_stdout": True}, "closed its output", id="it only closes its output"),
            pytest.param({"freeze": True}, "hangs", id="it hangs"),
        ],
    )
    def test_a_server_that_lives_but_is_of_no_use_is_replaced(
        self, fault_server: Server, connect: Connect, tmp_path: Path, fault: Json, said: str
    ) -> None:
        config = fault_server(
            faults=[{"tool": "echo", **fault}], state_file=tmp_path / "state", by_start={"2": {"faults": []}}
        )
        client = connect(config, restart=QUICK, healthTimeout=0.1)
        client.subscribe(events := Recorder())
        hangs = said == "hangs"
        outcome = client.call_tool("echo", {"text": "hi"}, timeout=0.1 if hangs else PATIENCE)
        assert not hangs or outcome["error_type"] == "timeout"
        events.wait_for(Restarted)
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
        assert said in str(client.last_error)
        assert not is_alive(read_state(tmp_path / "state").pids[0])

    def test_a_server_that_stops_reading_is_replaced(
        self, fault_server: Server, connect: Connect, tmp_path: Path
    ) -> None:
        config = fault_server(
            faults=[{"tool": "pid", "stop_reading": True}],
            state_file=tmp_path / "state",
            by_start={"2": {"faults": []}},
        )
        client = connect(config, restart=QUICK, healthTimeout=0.1)
        events = Recorder()
        client.subscribe(events)
        client.call_tool("pid")
        large = {"text": "x" * 4_000_000}
        assert client.call_tool("echo", large, timeout=0.2)["error_type"] == "timeout"
        waiting = client.submit_tool("echo", {"text": "hi"}, timeout=30.0)
        assert text(waiting.result(PATIENCE)) == "hi"
        events.wait_for(Restarted)
        assert [call.tool for call in read_state(tmp_path / "state").calls] == ["pid", "echo"]

    @pytest.mark.skipif(os.name != "posix", reason="a shell starts the server")
    def test_a_wrapper_that_is_killed_costs_no_wait_for_the_server_behind_it(
        self, fault_server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such as npx: the server behind it holds the pipes open."""
        monkeypatch.setattr("gaia.mcp.transports.stdio_channel._DRAIN_SECONDS", 10 * PATIENCE)
        server = fault_server()
        words = [server["command"], *server["args"]]
        client = connect({"command": "sh", "args": ["-c", '"$@"; exit $?', "wrapper", *words], "restart": QUICK})
        client.subscribe(events := Recorder())
        os.kill(client.status.pid or 0, signal.SIGKILL)
        events.wait_for(Restarted)
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"


class TestListeners:
    def test_events_come_in_order(self, fault_server: Server) -> None:
        client = MCPClient.from_config("fault", {**fault_server(), "restart": QUICK})
        events = Recorder()
        client.subscribe(events)
        client.connect()
        os.kill(client.status.pid or 0, signal.SIGKILL)
        events.wait_for(Restarted)
        client.disconnect()
        assert events.states == [
            ServerState.STARTING,
            ServerState.READY,
            ServerState.RESTARTING,
            ServerState.READY,
            ServerState.CLOSED,
        ]
        kinds = [type(event) for event in events.events]
        assert kinds.index(Restarted) == kinds.index(StateChanged, 4) + 1
        (added, removed) = events.of(ToolsChanged)
        assert "echo" in added.added
        assert "echo" in removed.removed

    def test_changes_of_tools_are_told(self, fault_server: Server, connect: Connect) -> None:
        tools = [{"name": "new"}, {"name": "echo", "description": "Another one."}]
        client = connect(fault_server(tools=[{"name": "old"}], faults=[{"tool": "pid", "change_tools": tools}]))
        events = Recorder()
        client.subscribe(events)
        client.call_tool("pid")
        assert events.wait_for(ToolsChanged) == ToolsChanged("fault", ("new",), ("old",), ("echo",))
        assert "new" in [tool.name for tool in client.list_tools()]

    def test_log_messages_are_told(self, fault_server: Server, connect: Connect) -> None:
        message = {"method": "notifications/message", "params": {"level": "error", "logger": "db", "data": [1]}}
        client = connect(fault_server(faults=[{"tool": "echo", "notifications": [message]}]))
        events = Recorder()
        client.subscribe(events)
        client.call_tool("echo", {"text": "hi"})
        assert events.wait_for(ServerLog) == ServerLog("fault", "error", "db", [1])

    def test_one_that_fails_is_told_the_next_event_all_the_same(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        events = Recorder()

        def listener(event: Event) -> None:
            events(event)
            raise ZeroDivisionError

        client.subscribe(listener)
        client._engine.happened(ServerLog("fault", "info", None, 1))
        client._engine.happened(ServerLog("fault", "info", None, 2))
        events.wait_for(ServerLog, data=2)

    def test_one_that_has_unsubscribed_is_told_nothing_more_not_even_what_was_under_way(
        self, fault_server: Server, connect: Connect
    ) -> None:
        client = connect(fault_server())
        seen: list[Event] = []
        entered, go_on = threading.Event(), threading.Event()

        def listener(event: Event) -> None:
            seen.append(event)
            entered.set()
            assert go_on.wait(PATIENCE)

        unsubscribe = client.subscribe(listener)
        for number in range(3):
            client._engine.happened(ServerLog("fault", "info", None, number))
        assert entered.wait(PATIENCE)
        unsubscribe()
        unsubscribe()
        go_on.set()
        client.disconnect()
        assert seen == [ServerLog("fault", "info", None, 0)]

    def test_many_threads_may_subscribe_at_once(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server())
        listeners = [Recorder() for _ in range(50)]
        with ThreadPoolExecutor(8) as threads:
            unsubscribers = list(threads.map(client.subscribe, listeners))
        client._engine.happened(ServerLog("fault", "info", None, 1))
        for listener in listeners:
            listener.wait_for(ServerLog)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda unsubscribe: unsubscribe(), unsubscribers))
        client._engine.happened(ServerLog("fault", "info", None, 2))
        client.disconnect()
        assert all(len(listener.events) == 1 for listener in listeners)


class TestStatus:
    def test_before_connecting(self, fault_server: Server) -> None:
        status = MCPClient.from_config("fault", fault_server()).status
        assert (status.name, status.state, status.generation, status.pid) == ("fault", ServerState.CREATED, 0, None)
        assert (status.uptime, status.last_error, status.latency_p50) == (None, None, None)

    def test_while_it_runs(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "error": {"code": -1, "message": "no"}}]))
        pid = int(text(client.call_tool("pid")))
        client.call_tool("echo", {"text": "hi"})
        status = client.status
        assert status.state is ServerState.READY
        assert (status.pid, status.generation, status.restarts) == (pid, 1, 0)
        assert (status.in_flight, status.queued) == (0, 0)
        assert status.tool_count == 8
        assert (status.calls, status.errors) == (2, 1)
        assert status.uptime is not None
        assert status.uptime >= 0
        assert status.latency_p50 is not None
        assert status.latency_p95 is not None
        assert 0 < status.latency_p50 <= status.latency_p95
        assert status.protocol_version == HANDSHAKE_REVISIONS[0]
        assert status.last_error is None

    def test_with_calls_in_flight(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "await_cancel": True}]))
        futures = [client.submit_tool("echo", {"text": "hi"}) for _ in range(3)]
        assert client.status.in_flight == 3
        for future in futures:
            future.cancel()
        assert client.status.in_flight == 0

    def test_with_calls_that_wait(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(), restart={"initialDelay": 30})
        events = Recorder()
        client.subscribe(events)
        # The first restart is immediate.
        os.kill(client.status.pid or 0, signal.SIGKILL)
        events.wait_for(Restarted)
        os.kill(client.status.pid or 0, signal.SIGKILL)
        assert wait_until(lambda: client.status.retry_in is not None)
        futures = [client.submit_tool("echo", {"text": "hi"}) for _ in range(3)]
        assert (client.status.queued, client.status.in_flight) == (3, 0)
        assert futures[0].cancel()
        assert client.status.queued == 2
        client.disconnect()
        assert isinstance(futures[1].exception(PATIENCE), CallCancelled)


def test_a_restart_policy_can_be_given(fault_server: Server) -> None:
    config = fault_server(faults=[{"tool": "echo", "crash": "before_answer"}])
    transport = StdioTransport(config["command"], config["args"])
    with MCPClient("fault", transport, restart_policy=RestartPolicy("never")) as client:
        client.call_tool("echo", {"text": "hi"})
        assert wait_until(lambda: client.state is ServerState.FAILED)


class TestProcess:
    """The process that a client lives in."""

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    @pytest.mark.parametrize(
        "leaving", ["pass", "raise SystemExit(0)", "import atexit; atexit.register(manager.disconnect_all)"]
    )
    def test_its_end_is_the_end_of_the_servers_and_what_they_started(
        self, fault_server: Server, tmp_path: Path, leaving: str
    ) -> None:
        script = """
import json, sys
from gaia.mcp import MCPClient, MCPClientManager
config = json.loads(sys.argv[1])
client = MCPClient.from_config("one", config)
client.subscribe(lambda event: None)
assert client.connect()
manager = MCPClientManager()
manager.subscribe(lambda event: None)
manager.add_server("two", config)
manager.add_server("three", config)
for one in (client, manager.get_client("two"), manager.get_client("three")):
    print(one.status.pid, json.loads(one.call_tool("children")["content"][0]["text"])[0])
sys.stdout.flush()
"""
        config = fault_server(child="own_session", state_file=tmp_path / "state")
        done = self.run(script + leaving, json.dumps(config))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        pids = [int(pid) for pid in done.stdout.split()]
        assert len(pids) == 6
        assert not any(is_alive(pid) for pid in pids)
        # They were asked to leave, not killed.
        assert read_state(tmp_path / "state").ends == ("eof", "eof", "eof")

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_after_a_fork_the_childs_copies_know_that_they_are_dead_and_the_parents_live_on(
        self, fault_server: Server, tmp_path: Path
    ) -> None:
        script = """
import json, os, sys, threading, warnings
warnings.simplefilter("ignore")
from gaia.mcp import MCPClient
client = MCPClient.from_config("fault", json.loads(sys.argv[1]))
client.subscribe(lambda event: None)
assert client.connect()
# Another thread is connecting, and holds its lock, when the fork happens.
hanging = MCPClient.from_config("hanging", json.loads(sys.argv[2]))
connecting = threading.Thread(target=hanging.connect)
connecting.start()
while hanging.status.pid is None:
    pass
child = os.fork()
if child == 0:
    for copy in (client, hanging):
        assert not copy.is_connected()
        assert copy.status.pid is None
        try:
            copy.call_tool("echo", {"text": "hi"})
        except RuntimeError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("a server that belongs to the parent took a call")
        copy.disconnect()
    assert client.connect(), client.last_error
    assert client.call_tool("echo", {"text": "of the child"})["content"]
    assert client.submit_tool("echo", {"text": "of the child"}).result(10)["content"]
    client.disconnect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert client.call_tool("echo", {"text": "of the parent"})["content"]
assert client.submit_tool("echo", {"text": "of the parent"}).result(10)["content"]
hanging.disconnect()
connecting.join()
client.disconnect()
"""
        config = fault_server(state_file=tmp_path / "state")
        hanging = fault_server(faults=[{"on": "initialize", "hang": True}])
        done = self.run(script, json.dumps(config), json.dumps(hanging))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        calls = [(call.start, call.arguments["text"]) for call in read_state(tmp_path / "state").calls]
        assert calls == [(2, "of the child")] * 2 + [(1, "of the parent")] * 2

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_a_forked_child_does_not_wait_for_servers_that_its_parent_connects(self, fault_server: Server) -> None:
        script = """
import contextlib, json, os, sys, threading, warnings
warnings.simplefilter("ignore")
from gaia.mcp import MCPClientManager
manager = MCPClientManager()

def connect():
    with contextlib.suppress(RuntimeError):
        manager.add_server("hanging", json.loads(sys.argv[1]))

connecting = threading.Thread(target=connect)
connecting.start()
while not any(status.pid for status in manager.status()):
    pass
child = os.fork()
if child == 0:
    answer = manager.call_tool("mcp_hanging_echo", {"text": "hi"})
    assert answer["delivery"] == "not_sent", answer
    assert "fork" in answer["error"], answer
    manager.disconnect_all()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
manager.disconnect_all()
connecting.join()
"""
        hanging = fault_server(faults=[{"on": "initialize", "hang": True}])
        done = self.run(script, json.dumps(hanging))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
