"""`gaia mcp watch`."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until


def test_once_prints_one_table_of_all_servers(
    configure: Callable[..., Path],
    invoke: Callable[..., Any],
    demo_server: dict[str, Any],
    fault_server: Callable[..., dict[str, Any]],
) -> None:
    configure(good=demo_server, bad=fault_server(exit_at_start={"code": 3}), off={"command": "x", "disabled": True})
    result = invoke("watch", "--once")
    header, *rows = result.stdout.splitlines()

    assert result.exit_code == 0
    assert header.split()[:5] == ["name", "state", "generation", "restarts", "in"]
    assert [row.split()[:3] for row in rows] == [["good", "ready", "1"], ["bad", "failed", "2"]]
    assert "exited with code 3" in rows[1]


def test_a_pipe_gets_one_table(configure: Callable[..., Path], invoke: Callable[..., Any]) -> None:
    configure(bad={"command": "no-such-program-anywhere"})

    assert len(invoke("watch").stdout.splitlines()) == 2


def test_once_as_json_is_one_document(
    configure: Callable[..., Path], invoke_json: Callable[..., Any], demo_server: dict[str, Any]
) -> None:
    configure(demo=demo_server)
    (status,) = invoke_json("watch", "--once")["servers"]

    assert (status["name"], status["state"], status["tool_count"]) == ("demo", "ready", 6)
    (round_trip,) = status["round_trips"]
    assert round_trip > 0
    assert status["latency_p50"] > 0


def test_no_servers_is_no_error(invoke: Callable[..., Any]) -> None:
    result = invoke("watch")

    assert result.exit_code == 0
    assert "No servers are configured" in result.stdout


def test_json_is_one_object_a_line_until_interrupted(
    configure: Callable[..., Path],
    start: Callable[..., "subprocess.Popen[str]"],
    fault_server: Callable[..., dict[str, Any]],
    processes_of: Callable[[], list[int]],
    tmp_path: Path,
) -> None:
    configure(it=fault_server(state_file=tmp_path / "state"))
    with start("watch", "--json", "--interval", "0.1") as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        states = (status["state"] for line in watching.stdout for status in json.loads(line)["servers"])
        assert "ready" in states
        os.killpg(watching.pid, signal.SIGINT)
        errors = watching.stderr.read()

    assert (watching.returncode, errors) == (130, "")
    assert processes_of() == []


@pytest.fixture
def screen() -> Iterator[tuple[int, int]]:
    """A terminal: what it shows, and what a program writes to."""
    controller, terminal = pty.openpty()
    yield controller, terminal
    os.close(controller)


def test_a_terminal_shows_the_restart_of_a_server_live(
    configure: Callable[..., Path],
    gaia_argv: list[str],
    environment: dict[str, str],
    fault_server: Callable[..., dict[str, Any]],
    processes_of: Callable[[], list[int]],
    screen: tuple[int, int],
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    configure(it=fault_server(state_file=state))
    controller, terminal = screen
    watching = subprocess.Popen(
        [*gaia_argv, "mcp", "watch"],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "120"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    shown = _read_until(controller, b"ready", "█".encode())
    os.kill(read_state(state).pids[0], signal.SIGKILL)
    # The first restart comes at once, so "restarting" may never be drawn.
    shown += _read_until(controller, b"SIGKILL", b"ready")
    os.killpg(watching.pid, signal.SIGINT)
    shown += _read_until(controller)

    assert watching.wait(PATIENCE) == 130
    assert b"Traceback" not in shown
    # The cursor is back.
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert wait_until(lambda: processes_of() == [])


def _read_until(screen: int, *words: bytes, seconds: float = 20.0) -> bytes:
    """Read until the words have been shown, in this order; without any, until the program has ended."""
    deadline = time.monotonic() + seconds
    shown, missing, position = b"", list(words), 0
    while missing or not words:
        readable, _, _ = select.select([screen], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"{missing} was not shown: {shown!r}"
        try:
            chunk = os.read(screen, 65536)
        except OSError:
            # What Linux says about a terminal that nobody has open any more.
            chunk = b""
        if not chunk:
            assert not missing, shown
            break
        shown += chunk
        while missing and (found := shown.find(missing[0], position)) >= 0:
            position = found + len(missing.pop(0))
    return shown
