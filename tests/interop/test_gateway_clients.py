"""Clients that others wrote use a server through a gateway, over HTTP and on stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import gateway_process
from tests.servers import real_servers
from tests.serving.served import command, environment
from tests.waiting import PATIENCE

SCRIPTS = Path(__file__).parent / "clients"

CLIENTS = {
    # By the server whose environment has the client.
    "sqlite": "sdk1_client.py",
    "fastmcp": "fastmcp_client.py",
}

EVERYTHING: dict[str, Any] = {
    "echo": "höre",
    "added": {"sum": 3},
    "failed": True,
    "asked": ["Cleo", "Paris", ["file:///here"]],
    "count": "3",
    "progress": [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]],
    "template": "number 7",
    "prompt": "Greet\nwho: Ada",
}
HANDSHAKE: dict[str, Any] = {
    "revision": "2025-11-25",
    "instructions": "## combined\n\nUse with care.",
    "completed": ["alan"],
    "logged": ["loud"],
    "updated": True,
}


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file with one server, with which the gateway speaks this revision."""
    line = command("mcp", "serve", "tests.gateway.combination_agent:CombinationAgent")
    variables = {"PYTHONPATH": environment()["PYTHONPATH"], "NAME": "combined"}
    entry = {"command": line[0], "args": line[1:], "env": variables, "protocol": request.param}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"combined": entry}}))
    return str(file)


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_uses_everything(name: str, transport: str, config: str) -> None:
    try:
        python = real_servers.command_of(name)[0]
    except real_servers.Unavailable as reason:
        pytest.skip(str(reason))
    client = [python, str(SCRIPTS / CLIENTS[name])]
    if transport == "stdio":
        found = run(*client, *command("mcp", "gateway", "--stdio", "--config", config))
    else:
        with gateway_process("--config", config) as gateway:
            found = run(*client, f"http://127.0.0.1:{gateway.port}/mcp")
    assert {"combined_echo", "combined_add"} <= set(found.pop("tools"))
    assert found == (EVERYTHING if name == "fastmcp" else EVERYTHING | HANDSHAKE)


def run(*line: str) -> dict[str, Any]:
    """What the client prints."""
    ended = subprocess.run(line, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found
