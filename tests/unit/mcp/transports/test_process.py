"""One server process and everything it starts: how it begins, how it ended, and how all of it is ended.

Whichever process is its parent, and however its host ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from gaia.mcp.errors import StartFailed
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.direct_process import host_guard
from gaia.mcp.transports.fork_server import fork_server
from gaia.mcp.transports.process import ending_of
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.unit.mcp.transports.conftest import (
    PATIENCE,
    PRELUDE,
    Configure,
    Json,
    Listener,
    OpenChannel,
    RunHost,
    Start,
    both_parents,
    call,
    end,
    posix,
)


class TestStarting:
    @pytest.mark.process
    @both_parents
    @posix
    def test_an_executable_that_is_no_program_is_no_connection(self, parent: str, tmp_path: Path) -> None:
        (tmp_path / "server").write_bytes(b"\x7fELF")
        (tmp_path / "server").chmod(0o700)
        with pytest.raises(StartFailed, match="could not be started"):
            StdioTransport(str(tmp_path / "server"), []).open(Listener(), "test")

    @pytest.mark.process
    @both_parents
    @pytest.mark.parametrize(
        "settings",
        [{"args": ["a\0b"]}, {"args": [], "env": {"A": "a\0b"}}, {"args": [], "env": {"A=B": "c"}}, {"args": [5]}],
    )
    def test_what_no_program_can_be_given_is_no_connection(self, parent: str, settings: Json) -> None:
        assert StdioTransport(sys.executable, **settings).connect() is False

    @both_parents
    @posix
    def test_a_server_leads_a_session_and_group_of_its_own(self, start: Start) -> None:
        """So that Ctrl-C in our terminal does not reach it."""
        pid = call(start(), "pid")
        assert os.getpgid(pid) == os.getsid(pid) == pid

    @both_parents
    @posix
    def test_what_guards_servers_comes_with_the_first_and_goes_with_the_last(
        self, fault_server: Configure, parent: str
    ) -> None:
        def guard() -> int | None:
            if parent == "reaper":
                return fork_server.pid
            return host_guard._process.pid if host_guard._process is not None else None

        servers = [StdioTransport(**fault_server()) for _ in range(2)]
        assert guard() is None
        for server in servers:
            assert server.connect()
        pid = guard()
        assert pid is not None
        assert is_alive(pid)
        servers[0].disconnect()
        assert guard() == pid
        servers[1].disconnect()
        assert guard() is None
        assert not is_alive(pid)


@both_parents
class TestEnding:
    @pytest.mark.parametrize(
        ("exit_at_start", "ending", "text"),
        [
            ({"code": 0}, Ending(exit_code=0), "exited with code 0"),
            ({"code": 42}, Ending(exit_code=42), "exited with code 42"),
            pytest.param({"signal": 9}, Ending(signal="SIGKILL"), "was killed by SIGKILL", marks=posix),
        ],
    )
    def test_it_says_how_the_process_ended(
        self, fault_server: Configure, parent: str, exit_at_start: Json, ending: Ending, text: str
    ) -> None:
        listener = Listener()
        channel = StdioTransport(**fault_server(exit_at_start=exit_at_start)).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        assert channel.ending(PATIENCE) == ending
        assert channel.close(0.0) == ending
        assert str(ending) == text
        assert ending.clean is (ending.exit_code == 0)

    def test_there_is_none_while_the_server_runs(self, open_channel: OpenChannel) -> None:
        channel, _ = open_channel()
        assert channel.ending(0.0) is None
        assert channel.is_alive()


def test_a_signal_without_a_name_is_a_number() -> None:
    assert ending_of(-123) == Ending(signal="signal 123")


@both_parents
class TestShutdown:
    """The sequence of the specification: end of input, SIGTERM, SIGKILL."""

    def test_a_good_server_leaves_at_the_end_of_its_input(self, open_channel: OpenChannel, tmp_path: Path) -> None:
        channel, _ = open_channel(state_file=tmp_path / "state")
        assert channel.close(PATIENCE) == Ending(exit_code=0)
        assert read_state(tmp_path / "state").ends == ("eof",)

    @posix
    def test_one_that_stays_is_sent_sigterm_after_its_grace(self, open_channel: OpenChannel, tmp_path: Path) -> None:
        channel, _ = open_channel(ignore_eof=True, state_file=tmp_path / "state")
        assert channel.close(0.1) == Ending(signal="SIGTERM")

    @posix
    def test_one_that_survives_sigterm_is_killed(
        self, monkeypatch: pytest.MonkeyPatch, open_channel: OpenChannel, tmp_path: Path
    ) -> None:
        # The server has to come to run within it, or it is killed before it hears of SIGTERM.
        monkeypatch.setattr("gaia.mcp.transports.process._TERMINATE_SECONDS", 1.0)
        state_file = tmp_path / "state"
        channel, _ = open_channel(ignore_eof=True, ignore_sigterm=True, state_file=state_file)
        assert channel.close(0.1) == Ending(signal="SIGKILL")
        assert read_state(state_file).ends[-1] == "sigterm"

    @posix
    def test_one_that_has_been_stopped_hears_sigterm_all_the_same(self, open_channel: OpenChannel) -> None:
        channel, _ = open_channel()
        assert channel.pid is not None
        os.kill(channel.pid, signal.SIGSTOP)
        assert channel.close(0.1) == Ending(signal="SIGTERM")

    def test_the_time_between_is_what_the_specification_wants(self, parent: str) -> None:
        from gaia.mcp.transports import base, process

        assert process._TERMINATE_SECONDS == 5.0
        assert base._DEFAULT_GRACE == 2.0

    def test_one_that_has_ended_already_is_only_cleaned_up_after(self, open_channel: OpenChannel) -> None:
        channel, listener = open_channel()
        channel.popen.kill()
        assert listener.ended.wait(PATIENCE)
        began = time.monotonic()
        channel.close(PATIENCE)
        assert time.monotonic() - began < PATIENCE

    @pytest.mark.parametrize("keeps_pipes", [False, True], ids=["", "holding the pipes"])
    @pytest.mark.parametrize("child", ["same_group", "own_session", "daemon"])
    @posix
    def test_what_it_started_ends_with_it(self, start: Start, child: str, keeps_pipes: bool) -> None:
        transport = start(child=child, child_keeps_pipes=keeps_pipes)
        (pid,) = call(transport, "children")
        assert is_alive(pid)
        transport.disconnect()
        assert not is_alive(pid)


@posix
@both_parents
class TestHostDies:
    def test_when_it_is_killed_its_servers_die_even_those_that_want_to_stay(self, run_host: RunHost) -> None:
        host = run_host("connect(); wait()", {}, {"ignore_sigterm": True}, {"ignore_eof": False})
        facts = host.hear()
        host.kill()
        assert end(*facts["servers"], facts["guard"])

    def test_so_does_what_they_started(self, run_host: RunHost) -> None:
        script = """
connect()
responses = [transport.send_request("tools/call", {"name": "children"}) for transport in transports]
say(servers=[pid for response in responses for pid in json.loads(response["result"]["content"][0]["text"])])
wait()
"""
        children = ["same_group", *(["own_session", "daemon"] if Path("/proc/self/environ").exists() else [])]
        host = run_host(script, *({"child": child} for child in children))
        servers, grandchildren = host.hear()["servers"], host.hear()["servers"]
        assert len(grandchildren) == len(children)
        host.kill()
        assert end(*servers, *grandchildren)

    @pytest.mark.parametrize("ending", ["os._exit(3)", "sys.exit()", "os.kill(os.getpid(), signal.SIGTERM)"])
    def test_when_it_ends_without_a_goodbye_they_die_too(self, run_host: RunHost, ending: str) -> None:
        host = run_host(f"connect(); {ending}")
        facts = host.hear()
        host.wait()
        assert end(*facts["servers"], facts["guard"])

    def test_what_makes_a_host_leave_does_not_make_its_guard_leave(self, run_host: RunHost) -> None:
        host = run_host("connect(); wait()")
        facts = host.hear()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(facts["guard"], number)
        host.kill()
        assert end(*facts["servers"], facts["guard"])

    def test_a_guard_that_was_killed_is_replaced_by_one_that_knows_all_servers(self, run_host: RunHost) -> None:
        script = """
last = transports.pop()
connect()
wait()
assert last.connect()
say(servers=[last._process.pid], guard=guard())
wait()
"""
        host = run_host(script, {}, {})
        first = host.hear()
        os.kill(first["guard"], signal.SIGKILL)
        assert end(first["guard"])
        host.go_on()
        second = host.hear()
        assert second["guard"] != first["guard"]
        host.kill()
        assert end(*first["servers"], *second["servers"], second["guard"])

    def test_a_host_that_is_itself_a_server_takes_its_own_servers_along(
        self, fault_server: Configure, parent: str
    ) -> None:
        script = """
connect()
for line in sys.stdin:
    request = json.loads(line)
    pids = [transports[0]._process.pid, guard()]
    say(jsonrpc="2.0", id=request["id"], result={"pids": pids})
"""
        inner = [fault_server(ignore_eof=True, ignore_sigterm=True)]
        args = ["-c", PRELUDE + script, json.dumps(inner), parent]
        outer = StdioTransport(sys.executable, args, inherit_env=True)
        assert outer.connect()
        pids = outer.send_request("pids")["result"]["pids"]
        outer.disconnect()
        assert end(*pids)


@posix
class TestFork:
    """A forked child has copies of everything, and no right to any of it."""

    def test_the_child_gets_a_clear_error_and_the_parent_goes_on(self, run_host: RunHost) -> None:
        script = """
connect()
transport = transports[0]
child = os.fork()
if child == 0:
    say(connected=transport.is_connected(), error=error_of(transport))
    transport.disconnect()
    say(error=error_of(transport))
    os._exit(0)
os.waitpid(child, 0)
say(error=error_of(transport), connected=transport.is_connected())
transport.disconnect()
"""
        host = run_host(script, {"ignore_eof": False})
        host.hear()
        in_child = host.hear()
        assert in_child["connected"] is False
        assert "the server belongs to the parent process" in in_child["error"]
        assert "not running" in host.hear()["error"], "after disconnecting in the child"
        assert host.hear() == {"error": None, "connected": True}
        assert host.wait() == 0

    def test_nothing_that_the_child_writes_reaches_the_server_nor_any_file(self, run_host: RunHost) -> None:
        script = """
connect()
transport = transports[0]
child = os.fork()
if child == 0:
    # Some of these get the numbers of the descriptors that the child has let go of.
    files = [open("file-%d" % number, "wb") for number in range(20)]
    transport._connection.notify("from/the/child")
    transport._connection.channel.close(0.0)
    os._exit(0)
os.waitpid(child, 0)
response = transport.send_request("tools/call", {"name": "received"})
received = json.loads(response["result"]["content"][0]["text"])
say(received=received, sizes=[os.path.getsize("file-%d" % number) for number in range(20)])
transport.disconnect()
"""
        host = run_host(script, {"ignore_eof": False})
        host.hear()
        facts = host.hear()
        assert "from/the/child" not in [message["method"] for message in facts["received"]]
        assert set(facts["sizes"]) == {0}
        assert host.wait() == 0

    def test_the_child_may_start_a_server_of_its_own_with_a_guard_of_its_own(self, run_host: RunHost) -> None:
        script = """
connect()
child = os.fork()
if child == 0:
    connect()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
say(error=error_of(transports[0]))
wait()
"""
        host = run_host(script)
        parents, childs = host.hear(), host.hear()
        assert parents["guard"] != childs["guard"]
        assert parents["servers"] != childs["servers"]
        assert end(*childs["servers"], childs["guard"])
        assert host.hear() == {"error": None}
        host.kill()
        assert end(*parents["servers"], parents["guard"])

    def test_a_child_that_lives_on_does_not_hide_the_death_of_its_parent(self, run_host: RunHost) -> None:
        script = """
connect()
child = os.fork()
if child == 0:
    say(child=os.getpid())
    wait()
    os._exit(0)
signal.pause()
"""
        host = run_host(script, {}, {"ignore_eof": False})
        facts, child = host.hear(), host.hear()["child"]
        host.kill()
        assert end(*facts["servers"], facts["guard"])
        assert is_alive(child)
        host.go_on()
        assert end(child)
