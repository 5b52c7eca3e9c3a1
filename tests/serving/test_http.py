"""An agent over HTTP: whom it answers, what it refuses, and how it ends."""

import contextlib
import http.client
import json
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from gaia.cli.main import app
from tests.serving.served import Served, http_server
from tests.waiting import PATIENCE

if sys.platform != "win32":
    import resource

pytestmark = pytest.mark.slow

TRICKY = "tests.serving.agents:TrickyAgent"
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module")
def served(starts_programs: None) -> Iterator[Served]:
    with http_server(TRICKY, "--max-body", "100000") as server:
        yield server


def request(
    served: Served, method: str, path: str, body: bytes | Any = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, names)
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content.startswith(b"{") else {}
    finally:
        connection.close()


def call(served: Served, tool: str, arguments: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    standard = {
        "Content_Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP_Protocol_Version": "2026-07-28",
        "Mcp_Method": "tools/call",
        "Mcp_Name": tool,
    }
    return request(served, "POST", "/mcp", body, **{**standard, **headers})


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)


def works(served: Served, **headers: str) -> bool:
    status, answer = call(served, "upper", {"text": "a"}, **headers)
    return status == 200 and bool(answer["result"]["structuredContent"] == {"text": "A"})


def test_it_listens_on_loopback_and_is_served_by_its_names(served: Served) -> None:
    assert served.base.startswith("http://127.0.0.1:")
    assert request(served, "GET", "/health") == (200, {"status": "ok"})
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert works(served, Host=f"{host}:{served.port}")
        assert works(served, Host=host, Origin=f"http://{host}")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", ""])
def test_other_names_are_not(served: Served, host: str) -> None:
    assert call(served, "upper", {"text": "a"}, Host=host)[0] in (400, 421)
    assert request(served, "GET", "/health", Host=host)[0] in (400, 421)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1.nip.io", "file://"]
)
def test_web_pages_of_other_origins_are_refused(served: Served, origin: str) -> None:
    assert call(served, "upper", {"text": "a"}, Origin=origin)[0] == 403


def test_so_are_other_pages_of_this_machine(served: Served) -> None:
    assert call(served, "upper", {"text": "a"}, Origin="http://localhost:3000")[0] == 403
    assert works(served, Host=f"localhost:{served.port}", Origin=f"http://localhost:{served.port}")


def test_half_requests_do_not_keep_others_from_an_answer(served: Served) -> None:
    if sys.platform == "linux":
        # As on systems with few descriptors for each process, such as macOS.
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (256, 256))
    with contextlib.ExitStack() as opened:
        for _ in range(300):
            opened.enter_context(connect(served)).sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert request(served, "GET", "/health") == (200, {"status": "ok"})
        assert works(served)


def test_a_body_of_another_type_or_over_the_limit_or_broken_off_is_refused_and_harms_no_other(served: Served) -> None:
    assert call(served, "upper", {"text": "a"}, Content_Type="text/plain")[0] == 415
    assert call(served, "upper", {"text": "a" * 200_000})[0] == 413
    chunks = iter([b"a" * 50_000] * 4)
    assert request(served, "POST", "/mcp", chunks, Content_Type="application/json")[0] == 413, "without a length, too"
    with connect(served) as connection:
        connection.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        )
    assert works(served)


@pytest.fixture(scope="module")
def guarded(starts_programs: None) -> Iterator[Served]:
    with http_server(TRICKY, env={"GAIA_SERVE_TOKEN": "open-sesame"}) as server:
        yield server


class TestToken:
    def test_it_opens_the_endpoint_and_nothing_else_does(self, guarded: Served) -> None:
        assert works(guarded, Authorization="Bearer open-sesame")
        assert request(guarded, "GET", "/health")[0] == 200
        assert call(guarded, "upper", {"text": "a"})[0] == 401
        for header in ("Bearer wrong", "Basic open-sesame", "open-sesame", "Bearer ", "Bearer \xe9"):
            assert call(guarded, "upper", {"text": "a"}, Authorization=header)[0] == 401, header

    def test_it_is_asked_for_where_other_machines_can_call(self) -> None:
        line = ["mcp", "serve", TRICKY, "--transport", "http", "--host", "0.0.0.0", "--port", "0"]
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 2
        assert "can be reached from other machines" in result.stderr


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_even_in_the_middle_of_a_call(number: signal.Signals) -> None:
    with http_server(TRICKY, "--grace", "1") as served, connect(served) as connection:
        params = {
            "name": "wait-for-cancel",
            "arguments": {},
            "_meta": {**META, "io.modelcontextprotocol/logLevel": "info"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: tools/call\r\nMcp-Name: wait-for-cancel\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        received = b""
        while b'"waiting"' not in received:
            received += connection.recv(65536)
        served.process.send_signal(number)
        assert served.process.wait(PATIENCE) == 0


def test_a_port_that_is_taken_is_told_in_words(served: Served) -> None:
    line = ["mcp", "serve", TRICKY, "--transport", "http", "--port", str(served.port)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 1
    assert "cannot listen" in result.stderr
    assert "--port takes another one" in " ".join(result.stderr.split())
