"""The host's side of the guard, which is there where the servers are the host's own children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport, guard_process
from gaia.mcp.transports.direct_process import HostGuard, host_guard
from gaia.mcp.transports.fork_server import MARK_VARIABLE
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Configure, Listener, OpenChannel, direct, posix
from tests.waiting import PATIENCE, wait_until

pytestmark = posix


@pytest.fixture
def guard(starts_processes: None) -> Iterator[HostGuard]:
    """A guard of its own, apart from the one that transports use."""
    guard = HostGuard()
    yield guard
    for pid in list(guard._protected):
        guard.release(pid)


def pid_of(guard: HostGuard) -> int:
    assert guard._process is not None
    return guard._process.pid


class TestGuard:
    def test_what_was_released_is_left_alone(self, guard: HostGuard, sleeper: subprocess.Popen[bytes]) -> None:
        """Its process id may be somebody else's by now."""
        guard.protect(sleeper.pid, "mark")
        pid = pid_of(guard)
        guard.release(sleeper.pid)
        assert not is_alive(pid)
        assert is_alive(sleeper.pid)

    def test_it_inherits_nothing_that_makes_it_a_stray_of_a_server(
        self, guard: HostGuard, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(MARK_VARIABLE, "mark-of-this-host")
        guard.protect(sleeper.pid, "mark")
        process = psutil.Process(pid_of(guard))
        assert wait_until(lambda: MARK_VARIABLE not in process.environ())
        assert os.getsid(process.pid) == process.pid

    def test_one_that_was_killed_is_replaced_when_there_is_news(
        self, guard: HostGuard, sleeper: subprocess.Popen[bytes]
    ) -> None:
        guard.protect(sleeper.pid, "mark")
        killed = pid_of(guard)
        os.kill(killed, signal.SIGKILL)
        psutil.Process(killed).wait(PATIENCE)
        guard.protect(sleeper.pid, "mark")
        assert pid_of(guard) != killed
        assert is_alive(pid_of(guard))

    def test_so_is_one_that_has_been_stopped_as_soon_as_it_can_be_told_no_more(
        self, guard: HostGuard, sleeper: subprocess.Popen[bytes]
    ) -> None:
        guard.protect(sleeper.pid, "mark")
        stopped = pid_of(guard)
        os.kill(stopped, signal.SIGSTOP)
        for _ in range(10_000):
            guard.protect(sleeper.pid, "mark")
            if pid_of(guard) != stopped:
                break
        assert is_alive(pid_of(guard))
        assert not is_alive(stopped)

    @direct
    @pytest.mark.parametrize(
        ("attribute", "value", "is_logged"),
        [("executable", "", False), ("frozen", True, False), ("executable", "/no/such/python", True)],
    )
    def test_where_it_cannot_be_started_servers_run_without_it(
        self,
        fault_server: Configure,
        parent: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        attribute: str,
        value: object,
        is_logged: bool,
    ) -> None:
        server = StdioTransport(**fault_server())
        monkeypatch.setattr(sys, attribute, value, raising=False)
        assert server.connect()
        assert server.send_request("ping")["result"] == {}
        assert host_guard._process is None
        server.disconnect()
        assert ("guard_start_failed" in caplog.text) is is_logged


class TestProcess:
    @given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(2, 5))), st.lists(st.integers(0, 200)))
    def test_it_knows_whom_it_has_been_told_of_however_the_messages_are_cut(
        self, events: list[tuple[str, int]], positions: list[int]
    ) -> None:
        messages = [f"+ {pid} mark{pid}\n" if event == "+" else f"- {pid}\n" for event, pid in events]
        stream = "".join(messages).encode()
        edges = [0, *sorted(min(position, len(stream)) for position in positions), len(stream)]
        chunks = iter([*filter(None, map(lambda start, stop: stream[start:stop], edges, edges[1:])), b""])
        expected: dict[int, str] = {}
        for event, pid in events:
            if event == "+":
                expected[pid] = f"mark{pid}"
            else:
                expected.pop(pid, None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(guard_process, "_input_ready", lambda: True)
            patch.setattr(guard_process, "os", SimpleNamespace(read=lambda *_: next(chunks)))
            assert guard_process.watch(host=1) == expected

    def test_a_host_that_is_not_the_parent_any_more_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard_process, "_input_ready", lambda: False)
        assert guard_process.watch(host=os.getpid()) == {}

    def test_it_ends_groups(self, sleeper: subprocess.Popen[bytes]) -> None:
        # The sleeper is a child of ours: until it is waited for its group is still there.
        waiter = threading.Thread(target=sleeper.wait)
        waiter.start()
        guard_process.end({})
        guard_process.end({sleeper.pid: "no-such-mark"})
        waiter.join(PATIENCE)
        assert sleeper.returncode == -signal.SIGTERM
        assert not guard_process.signal_group(sleeper.pid, 0)

    @pytest.mark.process
    @pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only /proc shows environments")
    def test_it_finds_processes_by_their_mark(self) -> None:
        # All processes of the machine are looked at, and another run of the tests may be one of them.
        mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
        other = f"other-{mark}".encode()
        environment = {**os.environ, MARK_VARIABLE: f"outer.{mark}.inner"}
        command = [sys.executable, "-I", "-S", "-c", "print(flush=True); import time; time.sleep(300)"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                assert guard_process.marked_processes({mark.encode(), other}) == [process.pid]
                assert guard_process.marked_processes({other}) == []
            finally:
                process.kill()


@direct
class TestEnding:
    def test_it_says_how_the_process_ended_without_waitid_too(
        self, parent: str, fault_server: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on macOS before Python 3.13."""
        monkeypatch.delattr(os, "waitid", raising=False)
        listener = Listener()
        channel = StdioTransport(**fault_server(exit_at_start={"code": 42})).open(listener, "test")
        assert listener.ended.wait(PATIENCE)
        assert channel.close(0.0) == Ending(exit_code=42)

    @posix
    def test_it_is_unknown_if_the_application_reaps_our_children(
        self, open_channel: OpenChannel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: object) -> None:
            raise ChildProcessError

        monkeypatch.setattr(os, "waitid", gone)
        channel, listener = open_channel(exit_at_start=None)
        assert listener.ended.wait(PATIENCE)
        assert channel.close(0.0) == Ending()
        assert str(Ending()) == "closed its output"
