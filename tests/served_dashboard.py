"""A dashboard that is served for real, on a free port of this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from gaia.dashboard import Dashboard
from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.serving.options import HttpOptions
from tests.tracing import Tracing
from tests.waiting import PATIENCE


def trace_with(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the application's tracer provider for a test: a process can set one only once, and keeps it."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    Tracing.installed(monkeypatch, provider)


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A dashboard and its manager."""

    def __init__(self, manager: MCPClientManager, dashboard: Dashboard) -> None:
        self.manager = manager
        self.dashboard = dashboard
        self.port = int(dashboard.url.split("#")[0].rstrip("/").rsplit(":", 1)[1])

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        """With the token, unless `headers` say otherwise (``Authorization=""``)."""
        names = {"Authorization": f"Bearer {self.dashboard.token}", "Content-Type": "application/json", **headers}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, content, {name: value for name, value in names.items() if value})
            response = connection.getresponse()
            return Answered(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer that has to be 200."""
        answer = self.request("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def stream(self) -> Iterator[tuple[str, Any]]:
        """The live stream, until it ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {self.dashboard.token}"})
            response = connection.getresponse()
            assert response.status == 200
            kind = ""
            while line := response.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    yield kind, json.loads(line[6:])
        finally:
            connection.close()


@contextlib.contextmanager
def served_dashboard(folder: Path, servers: dict[str, dict[str, Any]]) -> Iterator[Served]:
    """Connect to the servers, whose configuration is kept in `folder`, and serve their dashboard."""
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    with MCPClientManager(MCPConfig(file)) as manager:
        dashboard = Dashboard(manager, HttpOptions(port=0, shutdown_grace=1), log_level=logging.DEBUG)
        dashboard.watch()
        manager.load_from_config()
        with dashboard:
            yield Served(manager, dashboard)
