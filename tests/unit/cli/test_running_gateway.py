"""What is shown of a gateway that runs; `tests/gateway/test_watching.py` asks one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from gaia.cli.running_gateway import fetch_status, rows_of, summary_of
from gaia.cli.terminal import CommandFailed
from gaia.mcp.supervision.events import ServerState
from tests.unit.mcp.gateway.operations.test_status import STATUS


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


def test_rows_are_those_of_the_list() -> None:
    assert rows_of(STATUS) == [
        {"name": "it", "state": "ready", "tools": 0, "source": None, "error": None, "waited": None}
    ]


def test_the_tools_of_a_server_at_rest_are_counted() -> None:
    at_rest = msgspec.structs.replace(STATUS.servers[0], state=ServerState.EXITED, tool_count=6)
    [row] = rows_of(msgspec.structs.replace(STATUS, servers=[at_rest]))
    assert (row["state"], row["tools"]) == ("exited", 6)
