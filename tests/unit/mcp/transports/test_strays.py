"""What a server has left behind, found by its group and its mark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from gaia.mcp.transports import process
from gaia.mcp.transports.stdio_channel import StdioChannel
from tests.servers.processes import is_alive
from tests.unit.mcp.transports.conftest import Listener, direct, posix
from tests.waiting import PATIENCE


@direct
@posix
def test_what_only_starts_while_the_others_are_ended_is_ended_too(
    open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
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
