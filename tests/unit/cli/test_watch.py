"""`gaia mcp watch` and `dashboard`, and what is shown of a gateway that runs."""

import json
import os
import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider

from gaia.cli.running_gateway import fetch_status, rows_of, summary_of
from gaia.cli.terminal import CommandFailed
from gaia.mcp.supervision.events import ServerState
from gaia.runtime.extras import install_command
from tests.served_dashboard import trace_with
from tests.servers.state_file import read_state
from tests.unit.cli.fixture_types import Configure, FaultServer, Invoke, Json, ProcessesOf, Start, Told
from tests.unit.mcp.gateway.operations.test_status import STATUS
from tests.waiting import PATIENCE, wait_until


def test_once_prints_one_table_of_all_servers_and_a_pipe_gets_one_too(
    configure: Configure, invoke: Invoke, invoke_json: Invoke, demo_server: Json, fault_server: FaultServer
) -> None:
    configure(good=demo_server, bad=fault_server(exit_at_start={"code": 3}), off={"command": "x", "disabled": True})
    for words in (["watch", "--once"], ["watch"]):
        result = invoke(*words)
        header, *rows = result.stdout.splitlines()
        assert result.exit_code == 0
        assert header.split()[:5] == ["name", "state", "generation", "restarts", "in"]
        assert [row.split()[:3] for row in rows] == [["good", "ready", "1"], ["bad", "failed", "2"]]
        assert "exited with code 3" in rows[1]
    status, _ = invoke_json("watch", "--once")["servers"]
    assert (status["name"], status["state"], status["tool_count"]) == ("good", "ready", 6)
    assert min(*status["round_trips"], status["latency_p50"]) > 0


def test_json_is_one_object_a_line_until_interrupted(
    configure: Configure, start: Start, fault_server: FaultServer, processes_of: ProcessesOf, tmp_path: Path
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


def test_a_terminal_shows_the_restart_of_a_server_live(
    configure: Configure, at_terminal: Invoke, fault_server: FaultServer, processes_of: ProcessesOf, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    configure(it=fault_server(state_file=state))
    # The first restart comes at once, so "restarting" may never be drawn.
    answers = [("ready", ""), ("█", lambda: os.kill(read_state(state).pids[0], signal.SIGKILL))]
    screen = at_terminal("watch", columns=120, answers=[*answers, ("SIGKILL", ""), ("ready", "\x03")])

    assert screen.exit_code == 130
    assert "Traceback" not in screen.text
    # The cursor is back.
    assert screen.drawn.rindex("\x1b[?25h") > screen.drawn.rindex("\x1b[?25l")
    assert wait_until(lambda: processes_of() == [])


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
    configure: Configure, start: Start, fault_server: FaultServer, processes_of: ProcessesOf, tmp_path: Path
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


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's tracer provider, which the dashboard would otherwise install for this process for ever."""
    trace_with(TracerProvider(), monkeypatch)


@pytest.mark.usefixtures("tracing")
def test_an_empty_token_a_port_that_is_taken_and_missing_packages_are_explained(
    refused: Told, failed: Told, hide_package: Callable[[str], None]
) -> None:
    error = refused("dashboard", "--token", "")
    assert "the token is empty" in error
    assert "Leave --token (or GAIA_DASHBOARD_TOKEN) out" in error
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in failed("dashboard", "--port", taken.getsockname()[1])
    hide_package("uvicorn")
    assert install_command("dashboard") in refused("dashboard")


@pytest.mark.usefixtures("tracing")
def test_on_a_terminal_the_url_with_the_token_of_the_environment_stays_below_what_is_logged(
    configure: Configure, at_terminal: Invoke, fault_server: FaultServer
) -> None:
    configure(bad=fault_server(exit_at_start={"code": 3, "stderr": "no licence"}))
    answers = [("no licence", ""), ("#token=open-sesame", ""), ("Ctrl-C", "\x03")]
    assert at_terminal("dashboard", "--port", "0", answers=answers, GAIA_DASHBOARD_TOKEN="open-sesame").exit_code == 0


@pytest.fixture
def answering(no_leaks: None) -> Iterator[Callable[[int, bytes], str]]:
    """Have a server answer each request with this status and body; returns its URL."""
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        answer = (200, b"")

        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(self.answer[0])
            self.send_header("Location", "http://127.0.0.1:1/status")
            self.send_header("Content-Length", str(len(self.answer[1])))
            self.end_headers()
            self.wfile.write(self.answer[1])

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def answer(status: int, body: bytes) -> str:
        Handler.answer = (status, body)
        return f"http://127.0.0.1:{server.server_port}/tools/mcp/files"

    yield answer
    server.shutdown()
    thread.join()
    server.server_close()
    assert all(one == ("/tools/status", "Bearer secret") for one in seen)


def test_the_status_is_beside_the_endpoint(answering: Callable[[int, bytes], str]) -> None:
    assert fetch_status(answering(200, msgspec.json.encode(STATUS)), "secret") == STATUS


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"{}", "does not let this client in"),
        (302, b"", "is no gateway"),
        (404, b"", "is no gateway"),
        (200, b"<html>", "is no gateway"),
        (200, b"{}", "is no gateway"),
    ],
)
def test_anything_else_is_told(status: int, body: bytes, words: str, answering: Callable[[int, bytes], str]) -> None:
    with pytest.raises(CommandFailed, match=words):
        fetch_status(answering(status, body), "secret")


@pytest.mark.parametrize("url", ["it", "ftp://x/mcp", "http:///mcp", "http://x:y/mcp"])
def test_what_is_no_url_is_not_asked(url: str) -> None:
    with pytest.raises(CommandFailed, match="is no URL of a gateway"):
        fetch_status(url, None)


def test_one_line_about_the_gateway() -> None:
    assert summary_of(STATUS) == (
        "Gateway gw1: 1 of at most 10 sessions, 2 requests under way in them, "
        "configuration refused: a.json: it is wrong"
    )
    stopping = msgspec.structs.replace(STATUS, name="", is_draining=True, reload=None)
    assert summary_of(stopping) == "1 of at most 10 sessions, 2 requests under way in them, stopping"


def test_rows_are_those_of_the_list_with_the_tools_of_a_server_at_rest() -> None:
    row = {"name": "it", "state": "ready", "tools": 0, "source": None, "error": None, "waited": None}
    assert rows_of(STATUS) == [row]
    at_rest = msgspec.structs.replace(STATUS.servers[0], state=ServerState.EXITED, tool_count=6)
    assert rows_of(msgspec.structs.replace(STATUS, servers=[at_rest])) == [{**row, "state": "exited", "tools": 6}]
