"""What a server has left behind, found by its group and its mark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from gaia.mcp.client.transports import strays
from gaia.mcp.client.transports.stdio_channel import StdioChannel
from tests.servers.processes import is_alive
from tests.unit.mcp.client.transports.conftest import PATIENCE, Listener, direct, posix


@direct
@posix
def test_what_only_starts_while_the_others_are_ended_is_ended_too(
    open_channel: Callable[..., tuple[StdioChannel, Listener]], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _ = open_channel(child="own_session")
    late: list[subprocess.Popen[bytes]] = []
    look = strays.find_strays

    def look_and_start(group: int | None, mark: str) -> list[psutil.Process]:
        found = look(group, mark)
        if not late:
            environment = psutil.Process(found[0].pid).environ()
            sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
            late.append(subprocess.Popen(sleeper, env=environment, start_new_session=True))
        return found

    monkeypatch.setattr(strays, "find_strays", look_and_start)
    channel.close(PATIENCE)
    assert not is_alive(late[0].pid)
    late[0].wait()
