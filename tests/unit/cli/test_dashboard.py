"""`gaia mcp dashboard` as a process of its own."""

import importlib.util
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.runtime.extras import install_command
from tests.waiting import PATIENCE, wait_until


def ask(base: str, token: str, path: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}{path}", content, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return json.load(response)


def call_once_connected(base: str, token: str) -> Any:
    """The answer of a tool. A server is ready a moment before its manager has it among those that can be called."""
    answers: list[Any] = []

    def is_answered() -> bool:
        try:
            answers.append(
                ask(base, token, "/api/try", {"server": "it", "tool": "echo", "arguments": {"text": "hello"}})
            )
        except urllib.error.HTTPError as refusal:
            with refusal:
                if refusal.code != 404:
                    raise
        return bool(answers)

    assert wait_until(is_answered)
    return answers[0]


def test_it_serves_all_servers_until_it_is_told_to_end(
    configure: Callable[..., Path],
    start: Callable[..., "subprocess.Popen[str]"],
    fault_server: Callable[..., dict[str, Any]],
    processes_of: Callable[[], list[int]],
    tmp_path: Path,
) -> None:
    configure(it=fault_server(state_file=tmp_path / "state"), bad={"command": "nonono"})
    with start("dashboard", "--port", "0") as serving:
        assert serving.stderr is not None
        assert serving.stdout is not None
        lines = iter(serving.stderr.readline, "")
        address = next(line for line in lines if line.startswith("Dashboard: "))
        match = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+)/#token=(\S+)\n", address)
        assert match is not None, address
        base, token = match.groups()
        assert wait_until(lambda: ask(base, token, "/api/state")["servers"][0]["state"] == "ready")
        result = call_once_connected(base, token)
        (call,) = ask(base, token, "/api/state")["calls"]
        os.kill(serving.pid, signal.SIGINT)
        rest, output = serving.stderr.read(), serving.stdout.read()

    assert result["content"] == [{"type": "text", "text": "hello"}]
    assert (call["tool"], call["outcome"]) == ("echo", "ok")
    assert serving.returncode == 0
    assert output == ""
    # What was logged while it ran is for the page, but for problems; and the token is nowhere.
    assert token not in rest
    assert "tool_called" not in rest
    assert processes_of() == []


def test_a_token_may_come_from_the_environment(
    configure: Callable[..., Path], start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    configure()
    with start("dashboard", "--port", "0", GAIA_DASHBOARD_TOKEN="open-sesame") as serving:
        assert serving.stderr is not None
        assert serving.stderr.readline().endswith("/#token=open-sesame\n")
        serving.terminate()
        assert serving.wait(PATIENCE) == 0


def test_an_empty_token_is_refused_with_a_way_out(invoke: Callable[..., Any]) -> None:
    result = invoke("dashboard", "--token", "")

    assert result.exit_code == 2
    assert "the token is empty" in result.stderr
    assert "Leave --token (or GAIA_DASHBOARD_TOKEN) out" in result.stderr


def test_a_port_that_is_taken_is_explained(run: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("dashboard", "--port", taken.getsockname()[1])

    assert result.returncode == 1
    assert "cannot listen" in result.stderr


def test_missing_packages_are_named(invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "uvicorn" else find_spec(name, *rest)
    )
    result = invoke("dashboard")

    assert result.exit_code == 2
    assert install_command("dashboard") in result.stderr


@pytest.fixture
def screen() -> Iterator[tuple[int, int]]:
    """A terminal: the end that a test reads, and the end that the command writes."""
    controller, terminal = pty.openpty()
    yield controller, terminal
    os.close(controller)


def test_on_a_terminal_the_url_stays_below_what_is_logged(
    configure: Callable[..., Path],
    gaia_argv: list[str],
    environment: dict[str, str],
    fault_server: Callable[..., dict[str, Any]],
    screen: tuple[int, int],
) -> None:
    configure(bad=fault_server(exit_at_start={"code": 3, "stderr": "no licence"}))
    controller, terminal = screen
    serving = subprocess.Popen(
        [*gaia_argv, "mcp", "dashboard", "--port", "0"],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "200", "GAIA_DASHBOARD_TOKEN": "open-sesame"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    written = ""

    def is_there() -> bool:
        """Whether the server's failure was written, and the URL again after it."""
        nonlocal written
        if select.select([controller], [], [], 0.1)[0]:
            written += os.read(controller, 65536).decode(errors="replace")
        _, failure, after = written.rpartition("no licence")
        return bool(failure) and re.search(r"Dashboard: http\S+#token=open-sesame\s+Ctrl-C", after) is not None

    try:
        assert wait_until(is_there), written
    finally:
        os.kill(serving.pid, signal.SIGINT)
        assert serving.wait(PATIENCE) == 0
