"""The host's side of the guard, which is there where the servers are the host's own children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.direct_process import HostGuard, host_guard
from gaia.mcp.transports.fork_server import MARK_VARIABLE
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Configure, direct, posix
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
    @direct
    def test_it_comes_with_the_first_server_and_goes_with_the_last(self, fault_server: Configure, parent: str) -> None:
        servers = [StdioTransport(**fault_server()) for _ in range(2)]
        assert host_guard._process is None
        for server in servers:
            assert server.connect()
        pid = pid_of(host_guard)
        assert is_alive(pid)
        servers[0].disconnect()
        assert pid_of(host_guard) == pid
        servers[1].disconnect()
        assert host_guard._process is None
        assert not is_alive(pid)

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
    @pytest.mark.parametrize(("attribute", "value"), [("executable", ""), ("frozen", True)])
    def test_where_no_python_can_be_started_servers_run_without_it(
        self, fault_server: Configure, parent: str, monkeypatch: pytest.MonkeyPatch, attribute: str, value: object
    ) -> None:
        server = StdioTransport(**fault_server())
        monkeypatch.setattr(sys, attribute, value, raising=False)
        assert server.connect()
        assert server.send_request("ping")["result"] == {}
        assert host_guard._process is None
        server.disconnect()

    @direct
    def test_where_it_cannot_be_started_servers_run_without_it_and_the_log_says_so(
        self, fault_server: Configure, parent: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = StdioTransport(**fault_server())
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        assert server.connect()
        server.disconnect()
        assert "guard_start_failed" in caplog.text
