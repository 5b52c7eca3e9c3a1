"""Writes the configuration with which a client uses a gateway."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence

NAME = "gaia"
TOKEN_VARIABLE = "GAIA_GATEWAY_TOKEN"  # noqa: S105 - the name of a variable


class ClientProgram(enum.StrEnum):
    CLAUDE = "claude"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"


FILES = {
    ClientProgram.CLAUDE: ".mcp.json of a project, or `mcpServers` in ~/.claude.json",
    ClientProgram.CURSOR: "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
    ClientProgram.VSCODE: ".vscode/mcp.json of a project, or the user's mcp.json",
    ClientProgram.CODEX: "~/.codex/config.toml",
}


def config_for_url(program: ClientProgram, url: str, *, with_token: bool) -> str:
    """The configuration for a gateway over HTTP. It never contains the token itself."""
    match program:
        case ClientProgram.CODEX:
            token = f"bearer_token_env_var = {json.dumps(TOKEN_VARIABLE)}\n" if with_token else ""
            return f"[mcp_servers.{NAME}]\nurl = {json.dumps(url)}\n{token}"
        case ClientProgram.VSCODE:
            entry: dict[str, object] = {"type": "http", "url": url}
            document: dict[str, object] = {"servers": {NAME: entry}}
            if with_token:
                entry["headers"] = {"Authorization": "Bearer ${input:gaia-gateway-token}"}
                asked = {
                    "type": "promptString",
                    "id": "gaia-gateway-token",
                    "description": "Token of the gaia gateway",
                    "password": True,
                }
                document = {"inputs": [asked], **document}
            return _json(document)
        case ClientProgram.CURSOR:
            headers = {"headers": _bearer(f"${{env:{TOKEN_VARIABLE}}}")} if with_token else {}
            return _json({"mcpServers": {NAME: {"url": url, **headers}}})
        case ClientProgram.CLAUDE:
            headers = {"headers": _bearer(f"${{{TOKEN_VARIABLE}}}")} if with_token else {}
            return _json({"mcpServers": {NAME: {"type": "http", "url": url, **headers}}})


def config_for_stdio(program: ClientProgram, command: Sequence[str]) -> str:
    first, *rest = command
    match program:
        case ClientProgram.CODEX:
            return f"[mcp_servers.{NAME}]\ncommand = {json.dumps(first)}\nargs = {json.dumps(rest)}\n"
        case ClientProgram.VSCODE:
            return _json({"servers": {NAME: {"type": "stdio", "command": first, "args": rest}}})
        case ClientProgram.CURSOR | ClientProgram.CLAUDE:
            return _json({"mcpServers": {NAME: {"command": first, "args": rest}}})


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"
