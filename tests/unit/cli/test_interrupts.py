"""Ctrl-C, which a terminal sends to the whole process group: exit status 130, no traceback, nothing left behind."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers.state_file import read_state
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def interrupt(command: "subprocess.Popen[str]") -> str:
    """Press Ctrl-C; returns what was written to standard error."""
    os.killpg(command.pid, signal.SIGINT)
    _, errors = command.communicate(timeout=20)
    return errors


@pytest.mark.parametrize(
    ("scenario", "words", "moment"),
    [
        ({}, ["call", "it", "sleep", "seconds=60"], "call"),
        ({"ignore_eof": True}, ["call", "it", "sleep", "seconds=60"], "call"),
        ({"start_delay": 60}, ["list"], "start"),
        ({"start_delay": 60}, ["tools", "it"], "start"),
        ({"faults": [{"on": "ping", "hang": True}]}, ["test-client", "it"], "start"),
        ({"faults": [{"on": "initialize", "hang": True}]}, ["doctor"], "start"),
    ],
    ids=["a call", "a call to a server that ignores the end of input", "list", "tools", "test-client", "doctor"],
)
def test_ctrl_c_stops_the_servers(
    scenario: dict[str, Any],
    words: list[str],
    moment: str,
    configure: Callable[..., Path],
    start: Callable[..., "subprocess.Popen[str]"],
    fault_server: Callable[..., dict[str, Any]],
    processes_of: Callable[[], list[int]],
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    configure(it=fault_server(state_file=state, **scenario))
    command = start(*words)
    assert wait_until(lambda: bool(read_state(state).calls if moment == "call" else read_state(state).starts), 20)
    errors = interrupt(command)

    assert command.returncode == 130
    assert errors == ""
    assert wait_until(lambda: processes_of() == [])


def test_ctrl_c_ends_the_demo_with_all_its_processes(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    command = start("demo")
    group = psutil.Process(command.pid)
    # The supervised server, the guard, and the server behind the raw pipe.
    assert wait_until(lambda: len(group.children(recursive=True)) >= 3, 20)
    children = group.children(recursive=True)
    errors = interrupt(command)

    assert command.returncode == 130
    assert errors == ""
    assert psutil.wait_procs(children, timeout=10)[1] == []
