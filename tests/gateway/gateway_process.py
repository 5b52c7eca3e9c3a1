"""A gateway as a process of its own: ``gaia mcp gateway``, and requests to it."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gaia
from tests.waiting import PATIENCE

SOURCE = Path(gaia.__file__).parents[1]

REVISION = "2026-07-28"
_META = "io.modelcontextprotocol/"


class Answer:
    """The response to one request."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class GatewayProcess:
    """A gateway that runs, and a client of it that opens a connection for each request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        """What it has written on standard error, as far as it was read."""
        self.port = 0
        self.token: str | None = None
        """What `ask` sends."""

    def wait_for_url(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("MCP gateway: "):
                assert line.endswith("/mcp\n")
                self.port = int(line.rsplit(":", 1)[1].removesuffix("/mcp\n"))
                return
        raise AssertionError(f"it has ended: {''.join(self.lines)}")

    def wait_for_line(self, part: str) -> str:
        """The next line on standard error with `part`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if part in line:
                return line
        raise AssertionError(f"{part!r} is not in: {''.join(self.lines)}")

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        return ask(self.port, method, path, body, {**self._authorization, **(headers or {})})

    def call(self, tool: str, arguments: Mapping[str, Any], path: str = "/mcp") -> Answer:
        """Call a tool as a client of the stateless era does."""
        return self.ask("POST", path, tool_call(tool, arguments), call_headers(tool))

    def open_session(self) -> Answer:
        """Begin a session as a client of the handshake era does."""
        return self.ask("POST", "/mcp", INITIALIZE, ACCEPT)

    @property
    def _authorization(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def tool_call(tool: str, arguments: Mapping[str, Any], identifier: int = 1) -> dict[str, Any]:
    meta = {
        f"{_META}protocolVersion": REVISION,
        f"{_META}clientCapabilities": {},
        f"{_META}clientInfo": {"name": "test", "version": "1"},
    }
    params = {"name": tool, "arguments": dict(arguments), "_meta": meta}
    return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}


def call_headers(tool: str) -> dict[str, str]:
    return {**ACCEPT, "MCP-Protocol-Version": REVISION, "Mcp-Method": "tools/call", "Mcp-Name": tool}


def ask(port: int, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), dict(headers))
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())


@contextlib.contextmanager
def gateway_process(*words: str, **variables: str) -> Iterator[GatewayProcess]:
    """Run ``gaia mcp gateway`` on a free port. It is killed if it still runs at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gaia.cli.main", "mcp", "gateway", "--port", "0", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **variables},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        running = GatewayProcess(process)
        try:
            running.wait_for_url()
            yield running
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
