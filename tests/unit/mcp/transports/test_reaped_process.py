"""A server below a reaper: nothing that it starts outlives it, or the host."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.fork_server import fork_server
from gaia.mcp.transports.reaped_process import ReapedPopen, ReapedProcess
from gaia.mcp.transports.stdio_channel import StdioChannel
from tests.servers.processes import is_alive, wait_for_end
from tests.unit.mcp.transports.conftest import Listener, RunHost, Start, call, end, linux
from tests.waiting import PATIENCE

pytestmark = linux


def process_of(transport: StdioTransport) -> ReapedProcess:
    assert isinstance(transport._channel, StdioChannel)
    process = transport._channel._process
    assert isinstance(process, ReapedProcess)
    return process


@contextlib.contextmanager
def server_that_runs(code: str, *, lasts: bool = True) -> Iterator[StdioTransport]:
    """A server that runs `code`, writes a line, and then reads its input to the end if it `lasts`."""
    code = f"import os, signal, subprocess, sys, time\n{code}\nprint('{{}}', flush=True)"
    lines = Listener()
    transport = StdioTransport(sys.executable, ["-I", "-S", "-c", f"{code}\nsys.stdin.read()" if lasts else code])
    try:
        transport.open(lines, "test")
        lines.lines.get(timeout=PATIENCE)
        yield transport
    finally:
        if transport._channel is not None:
            transport._channel.close(0.0)  # type: ignore[attr-defined]


class TestEscapes:
    """A daemon that has cleared its environment and ignores SIGTERM."""

    @pytest.mark.parametrize("keeps_pipes", [False, True], ids=["", "holding the pipes"])
    def test_it_ends_with_its_server(self, start: Start, keeps_pipes: bool) -> None:
        transport = start(child="escaped", child_keeps_pipes=keeps_pipes)
        (pid,) = call(transport, "children")
        assert is_alive(pid)
        transport.disconnect()
        assert not psutil.pid_exists(pid)

    def test_it_ends_with_its_host(self, run_host: RunHost) -> None:
        script = """
connect()
say(servers=json.loads(transports[0].send_request("tools/call", {"name": "children"})["result"]["content"][0]["text"]))
wait()
"""
        host = run_host(script, {"child": "escaped"})
        pids = [*host.hear()["servers"], *host.hear()["servers"]]
        host.kill()
        assert end(*pids)

    def test_it_ends_after_its_server_was_killed_and_leaves_others_alone(self, start: Start) -> None:
        crashed, other = start(child="escaped"), start(child="escaped")
        (pid,), (others,) = call(crashed, "children"), call(other, "children")
        os.kill(call(crashed, "pid"), signal.SIGKILL)
        crashed.disconnect()
        assert not psutil.pid_exists(pid)
        assert is_alive(others)

    def test_it_ends_when_the_reaper_is_killed(self, start: Start) -> None:
        """The fork server is the next subreaper above."""
        transport, other = start(child="escaped"), start()
        (pid,) = call(transport, "children")
        server = call(transport, "pid")
        os.kill(process_of(transport)._started.reaper, signal.SIGKILL)
        assert wait_for_end(pid)
        assert wait_for_end(server)
        assert transport._channel is not None
        assert transport._channel.ending(PATIENCE) == Ending()
        assert call(other, "pid") == process_of(other).pid

    def test_it_ends_when_the_reaper_has_been_stopped(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gaia.mcp.transports.reaped_process._END_SECONDS", 0.3)
        monkeypatch.setattr("gaia.mcp.transports.base._DEFAULT_GRACE", 0.1)
        monkeypatch.setattr("gaia.mcp.transports.process._TERMINATE_SECONDS", 0.1)
        monkeypatch.setattr("gaia.mcp.transports.process._KILL_SECONDS", 0.1)
        transport = start(child="escaped")
        (pid,) = call(transport, "children")
        os.kill(process_of(transport)._started.reaper, signal.SIGSTOP)
        transport.disconnect()
        assert wait_for_end(pid)

    def test_without_reaper_and_fork_server_the_mark_is_searched_for(self, start: Start) -> None:
        transport = start(child="daemon", ignore_eof=True)
        (pid,) = call(transport, "children")
        server = call(transport, "pid")
        assert fork_server.pid is not None
        os.kill(fork_server.pid, signal.SIGKILL)
        assert wait_for_end(fork_server.pid)
        os.kill(process_of(transport)._started.reaper, signal.SIGKILL)
        transport.disconnect()
        assert not is_alive(pid)
        assert not is_alive(server)

    @pytest.mark.process
    def test_those_that_never_stay_the_same_process_end(self, tmp_path: Path) -> None:
        """Each lives for some milliseconds, and starts the next."""
        alive = tmp_path / "alive"
        os.mkfifo(alive)
        hop = (
            f"import os, time; os.open({os.fspath(alive)!r}, os.O_WRONLY)\nwhile not os.fork():\n    time.sleep(0.003)"
        )
        code = f"for _ in range(5): subprocess.run([sys.executable, '-I', '-S', '-c', {hop!r}], env={{}}, check=True)"
        reading = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with server_that_runs(code), pytest.raises(BlockingIOError):
                os.read(reading, 1)
            assert os.read(reading, 1) == b"", "no process has it open any more"
        finally:
            os.close(reading)

    @pytest.mark.process
    def test_the_reaper_reaps_what_the_server_does_not(self) -> None:
        code = "[subprocess.run(['sh', '-c', 'sleep 0.01 &'], check=True) for _ in range(5)]"
        with server_that_runs(code) as transport:
            reaper = psutil.Process(process_of(transport)._started.reaper)
            deadline = time.monotonic() + PATIENCE
            while len(reaper.children(recursive=True)) > 1:
                assert time.monotonic() < deadline


class TestStarting:
    def test_the_servers_are_the_reapers_children_and_not_the_hosts(self, start: Start) -> None:
        transport = start()
        process = process_of(transport)
        assert psutil.Process(process.pid).ppid() == process._started.reaper
        assert psutil.Process(process._started.reaper).ppid() == fork_server.pid
        assert psutil.Process(process._started.reaper).name() == "gaia-reaper"

    def test_a_server_begins_where_the_host_is_now(
        self, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        start()
        monkeypatch.chdir(tmp_path)
        assert psutil.Process(process_of(start()).pid).cwd() == str(tmp_path)

    @pytest.mark.process
    def test_it_has_no_descriptors_of_ours_and_ignores_and_blocks_no_signals(self) -> None:
        """But for those that Python itself ignores."""
        with server_that_runs("") as transport:
            pid = process_of(transport).pid
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            assert set(os.listdir(f"/proc/{pid}/fd")) == {"0", "1", "2"}
            assert int(status["SigBlk"], 16) == 0
            # Without the realtime signals, which the C library has for itself.
            ignored = {number for number in range(1, 32) if int(status["SigIgn"], 16) >> number - 1 & 1}
            assert ignored == {signal.SIGPIPE, signal.SIGXFSZ}

    def test_a_limit_that_the_host_has_set_later_holds_for_it(self, start: Start) -> None:
        """The servers started before keep their fork server."""
        first = start()
        before = fork_server.pid
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        try:
            second = start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert fork_server.pid != before
        assert resource.prlimit(process_of(second).pid, resource.RLIMIT_NOFILE)[0] == soft - 1
        assert call(first, "pid") == process_of(first).pid

    @pytest.mark.process
    def test_arguments_and_environment_of_any_size_and_bytes_arrive(self) -> None:
        arguments = ["", "ä", "\udcff", "x" * 100_000, "two words", "\n"]
        code = "import os, sys; print(repr((sys.argv[1:], os.environ['LONG'])), flush=True); sys.stdin.read()"
        listener = Listener()
        transport = StdioTransport(
            sys.executable, ["-I", "-S", "-X", "utf8", "-c", code, *arguments], env={"LONG": "y" * 100_000}
        )
        channel = transport.open(listener, "test")
        try:
            assert listener.lines.get(timeout=PATIENCE) == repr((arguments, "y" * 100_000)).encode()
        finally:
            channel.close(0.0)


def test_one_that_is_stopped_twice_is_counted_once(start: Start) -> None:
    """As after an exception in the middle of a stop: what forked it goes on for the others, and ends with the last."""
    twice, other = start(), start()
    process, pid = process_of(twice), fork_server.pid
    twice.disconnect()
    process.stop(0.0)
    assert fork_server.pid == pid
    other.disconnect()
    assert fork_server.pid is None


class TestForkServerFails:
    def test_when_it_was_killed_its_servers_go_on_and_the_next_has_another(
        self, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = start()
        killed = fork_server.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        assert wait_for_end(killed)
        second = start()
        assert "guard_lost" in caplog.text
        assert fork_server.pid not in (None, killed)
        assert call(first, "pid") == process_of(first).pid
        assert call(second, "pid") == process_of(second).pid

    def test_one_that_has_been_stopped_is_replaced(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        first = start()
        stopped = fork_server.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        monkeypatch.setattr("gaia.mcp.transports.reaped_process._START_SECONDS", 0.2)
        with contextlib.suppress(AssertionError):
            # The new one gets as little time, and may be too slow for it.
            start()
        assert not is_alive(stopped)
        assert call(first, "pid") == process_of(first).pid

    @pytest.mark.parametrize(("code", "is_supported"), [(3, False), (1, True)])
    def test_where_there_can_be_none_servers_are_started_directly(
        self, start: Start, monkeypatch: pytest.MonkeyPatch, code: int, is_supported: bool
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.fork_server._ARGUMENTS", ["-c", f"raise SystemExit({code})"])
        monkeypatch.setattr(fork_server, "_is_supported", True)
        assert psutil.Process(call(start(), "pid")).ppid() == os.getpid()
        assert fork_server._is_supported is is_supported


class TestPopen:
    """What the specification's attribute `_process` offers."""

    def test_it_is_like_that_of_a_child(self, start: Start) -> None:
        popen = start()._process
        assert isinstance(popen, ReapedPopen)
        assert isinstance(popen, subprocess.Popen)
        assert popen.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            popen.wait(0.0)
        popen.terminate()
        assert popen.wait(PATIENCE) == popen.poll() == popen.returncode == -signal.SIGTERM
        popen.kill()
