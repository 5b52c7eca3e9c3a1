"""What is printed can be read by the clients, and has no token."""

import json
import tomllib

import pytest

from gaia.mcp.gateway.operations.client_config import FILES, ClientProgram, config_for_stdio, config_for_url

URL = "http://127.0.0.1:8765/mcp"
COMMAND = ["gaia", "mcp", "gateway", "--stdio"]


@pytest.mark.parametrize("program", [ClientProgram.CLAUDE, ClientProgram.CURSOR])
def test_claude_and_cursor(program: ClientProgram) -> None:
    with_token = json.loads(config_for_url(program, URL, with_token=True))["mcpServers"]["gaia"]
    without = json.loads(config_for_url(program, URL, with_token=False))["mcpServers"]["gaia"]
    started = json.loads(config_for_stdio(program, COMMAND))["mcpServers"]["gaia"]

    assert with_token["url"] == without["url"] == URL
    variable = "${env:GAIA_GATEWAY_TOKEN}" if program is ClientProgram.CURSOR else "${GAIA_GATEWAY_TOKEN}"
    assert with_token["headers"]["Authorization"] == f"Bearer {variable}"
    assert "headers" not in without
    assert started == {"command": "gaia", "args": COMMAND[1:]}
    assert set(FILES) == set(ClientProgram), "each client has a file"


def test_vscode_asks_for_the_token() -> None:
    document = json.loads(config_for_url(ClientProgram.VSCODE, URL, with_token=True))
    (asked,) = document["inputs"]

    assert document["servers"]["gaia"] == {
        "type": "http",
        "url": URL,
        "headers": {"Authorization": f"Bearer ${{input:{asked['id']}}}"},
    }
    assert (asked["type"], asked["password"]) == ("promptString", True)
    assert "inputs" not in json.loads(config_for_url(ClientProgram.VSCODE, URL, with_token=False))
    assert json.loads(config_for_stdio(ClientProgram.VSCODE, COMMAND))["servers"]["gaia"]["type"] == "stdio"


def test_codex() -> None:
    with_token = tomllib.loads(config_for_url(ClientProgram.CODEX, URL, with_token=True))["mcp_servers"]["gaia"]
    without = tomllib.loads(config_for_url(ClientProgram.CODEX, URL, with_token=False))["mcp_servers"]["gaia"]
    started = tomllib.loads(config_for_stdio(ClientProgram.CODEX, COMMAND))["mcp_servers"]["gaia"]

    assert with_token == {"url": URL, "bearer_token_env_var": "GAIA_GATEWAY_TOKEN"}
    assert without == {"url": URL}
    assert started == {"command": "gaia", "args": COMMAND[1:]}
