"""The protocol's inspector, in its command line mode, uses the agent of the documentation, also through a gateway."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import gateway_process
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


@pytest.fixture
def inspector() -> list[str]:
    try:
        return [*node.script(*INSPECTOR), "--cli"]
    except Unavailable as reason:
        pytest.skip(str(reason))


def inspect(line: list[str], *options: str) -> dict[str, Any]:
    """What the inspector prints; the server's command comes after the options."""
    at = line.index("--") if "--" in line else len(line)
    line = [*line[:at], *options, *line[at:]]
    run = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr + run.stdout
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def started_by(inspector: list[str], server: list[str]) -> list[str]:
    return [*inspector, "-e", f"PYTHONPATH={environment()['PYTHONPATH']}", "--", *server]


def lists_and_calls(line: list[str], prefix: str = "") -> None:
    names = [tool["name"] for tool in inspect(line, "--method", "tools/list")["tools"]]
    assert names == [f"{prefix}{name}" for name in TOOLS]
    called = inspect(line, "--method", "tools/call", "--tool-name", f"{prefix}count-words")
    assert called["structuredContent"]["words"]["welcome"] == 7


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_and_calls(transport: str, inspector: list[str], served: Served) -> None:
    if transport == "stdio":
        lists_and_calls(started_by(inspector, command("mcp", "serve", AGENT)))
    else:
        lists_and_calls([*inspector, "--transport", "http", "--server-url", served.url])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_uses_a_gateway(transport: str, inspector: list[str], served: Served, tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"notes": {"url": served.url}}}))
    if transport == "stdio":
        gateway = command("mcp", "gateway", "--stdio", "--config", str(config))
        lists_and_calls(started_by(inspector, gateway), "notes_")
        return
    with gateway_process("--config", str(config)) as running:
        url = f"http://127.0.0.1:{running.port}/mcp"
        lists_and_calls([*inspector, "--transport", "http", "--server-url", url], "notes_")
        lists_and_calls([*inspector, "--transport", "http", "--server-url", f"{url}/notes"])
        texts = [*inspector, "--transport", "http", "--server-url", url]
        assert "note:///welcome" in [one["uri"] for one in inspect(texts, "--method", "resources/list")["resources"]]
        read = inspect(texts, "--method", "resources/read", "--uri", "note:///welcome")
        assert read["contents"][0]["uri"] == "note:///welcome"
        asked = inspect(texts, "--method", "prompts/list")
        assert [prompt["name"] for prompt in asked["prompts"]] == ["notes_summarize-note"]
