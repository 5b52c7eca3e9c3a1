"""The protocol's inspector, in its command line mode, uses the agent of the documentation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import node
from tests.servers.real_servers import Unavailable
from tests.serving.served import Served, command, environment, http_server
from tests.serving.test_clients import AGENT, TOOLS
from tests.waiting import PATIENCE

INSPECTOR = ("@modelcontextprotocol/inspector", "clients/launcher/build/index.js")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with http_server(AGENT) as server:
        yield server


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_and_calls(transport: str, served: Served) -> None:
    try:
        inspector = [*node.script(*INSPECTOR), "--cli"]
    except Unavailable as reason:
        pytest.skip(str(reason))

    def inspect(*options: str) -> dict[str, Any]:
        if transport == "stdio":
            path = f"PYTHONPATH={environment()['PYTHONPATH']}"
            line = [*inspector, "-e", path, *options, "--", *command("mcp", "serve", AGENT)]
        else:
            line = [*inspector, "--transport", "http", "--server-url", served.url, *options]
        run = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
        assert run.returncode == 0, run.stderr + run.stdout
        result: dict[str, Any] = json.loads(run.stdout)
        return result

    assert [tool["name"] for tool in inspect("--method", "tools/list")["tools"]] == TOOLS
    called = inspect("--method", "tools/call", "--tool-name", "count-words")
    assert called["structuredContent"]["words"]["welcome"] == 7
