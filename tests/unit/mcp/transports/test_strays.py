"""What a server has left behind, found by its group and its mark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import psutil
import pytest

from gaia.mcp.transports import StdioTransport, process
from gaia.mcp.transports.process import tree_memory
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Listener, OpenChannel, both_parents, direct, linux, posix
from tests.waiting import PATIENCE


@direct
@posix
def test_what_only_starts_while_the_others_are_ended_is_ended_too(
    open_channel: OpenChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _ = open_channel(child="own_session")
    late: list[subprocess.Popen[bytes]] = []
    look = process.find_strays

    def look_and_start(group: int | None, mark: str) -> list[psutil.Process]:
        found = look(group, mark)
        if not late:
            environment = psutil.Process(found[0].pid).environ()
            sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
            late.append(subprocess.Popen(sleeper, env=environment, start_new_session=True))
        return found

    monkeypatch.setattr(process, "find_strays", look_and_start)
    channel.close(PATIENCE)
    assert not is_alive(late[0].pid)
    late[0].wait()


_PROGRAM = """
import sys
from gaia.mcp import MCPClient
from gaia.mcp.transports.fork_server import fork_server

client = MCPClient.from_config("demo", {"command": sys.executable, "args": ["-m", "gaia.mcp.demo_server"]})
assert client.connect(), client.last_error
print(fork_server.pid)
client.disconnect()
"""

_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*_NAMESPACE, "true"], check=False).returncode == 0


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="PID namespaces are Linux's")
def test_where_proc_shows_another_pid_namespace_servers_run_without_what_would_look_there() -> None:
    if not can_unshare():
        pytest.skip("no PID namespace can be made here")
    done = subprocess.run(
        [*_NAMESPACE, sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


@posix
def test_no_process_is_looked_for_by_the_numbers_of_another_pid_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("os.readlink", lambda _: "4711")
    with pytest.raises(OSError, match="PID namespace"):
        process.find_strays(os.getpgid(0), "mark")


MEGABYTE = 1024 * 1024
HOLDS = (
    "import sys; held = bytearray(64 << 20); held[::4096] = b'x' * len(held[::4096]); print('held', flush=True); "
    "sys.stdin.read()"
)


@pytest.fixture
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_walks", [(float("-inf"), {})])


@pytest.fixture
def tree(nothing_remembered: None, starts_processes: None) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose child holds 64 MiB."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {HOLDS!r}])"
    command = [sys.executable, "-I", "-S", "-c", child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.process
def test_that_of_descendants_counts(tree: subprocess.Popen[bytes]) -> None:
    own = psutil.Process(tree.pid).memory_info().rss
    everything = tree_memory(tree.pid)
    assert everything >= own + 64 * MEGABYTE
    assert everything - tree_memory(tree.pid, with_root=False) == pytest.approx(own, rel=0.2)


@pytest.mark.process
def test_a_process_that_is_gone_has_none(tree: subprocess.Popen[bytes]) -> None:
    assert tree.stdin is not None
    tree.stdin.close()
    tree.wait()
    assert tree_memory(tree.pid) == 0


def test_many_servers_are_looked_at_by_one_walk(
    nothing_remembered: None, monkeypatch: pytest.MonkeyPatch, clock_reading: Callable[[float], None]
) -> None:
    walks = []

    def walk(_: object) -> list[SimpleNamespace]:
        walks.append(1)
        return [SimpleNamespace(pid=999_999_999, info={"ppid": 999_999_998})]

    monkeypatch.setattr(psutil, "process_iter", walk)
    clock_reading(100.0)
    assert [tree_memory(999_999_998) for _ in range(5)] == [0] * 5
    assert len(walks) == 1
    clock_reading(103.0)
    tree_memory(999_999_998)
    assert len(walks) == 2


@pytest.fixture
def clock_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda seconds: monkeypatch.setattr(process.time, "monotonic", lambda: seconds)


@pytest.mark.process
@both_parents
def test_a_server_with_all_that_it_has_started(
    parent: str, nothing_remembered: None, open_channel: OpenChannel
) -> None:
    channel, _ = open_channel(child="own_session")
    assert channel.pid is not None
    (child,) = psutil.Process(channel.pid).children()
    least = child.memory_info().rss + psutil.Process(channel.pid).memory_info().rss
    assert channel.memory() >= 0.8 * least
    assert child.memory_info().rss > MEGABYTE


@linux
@pytest.mark.process
def test_a_child_that_left_its_server_counts_too(nothing_remembered: None) -> None:
    """Its parent is the reaper of the server then."""
    listener = Listener()
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-S', '-c', {HOLDS!r}])"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {start!r}]); sys.stdin.read()"
    channel = StdioTransport(sys.executable, ["-I", "-S", "-c", script]).open(listener, "test")
    try:
        assert listener.lines.get(timeout=20.0) == b"held"
        assert channel.memory() >= 64 * MEGABYTE
    finally:
        channel.close(0.0)
