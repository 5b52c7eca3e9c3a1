"""What to do about a server that does not start, in words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

__all__ = ["by_hand", "for_handshake", "for_login", "for_missing_program"]

_LAUNCHERS = {
    "uvx": "uvx comes with uv: https://docs.astral.sh/uv/",
    "uv": "Install uv: https://docs.astral.sh/uv/",
    "npx": "npx comes with Node.js: https://nodejs.org/",
    "node": "Install Node.js: https://nodejs.org/",
    "docker": "Install Docker: https://docs.docker.com/get-docker/",
}
"""Where the programs come from that start most servers."""

_REFUSED = re.compile(r"\b40[13]\b")
"""The HTTP statuses Unauthorized and Forbidden."""


def for_missing_program(program: str) -> str | None:
    """Where a well-known program comes from."""
    return _LAUNCHERS.get(os.path.basename(program))


def for_handshake(name: str, entry: Mapping[str, Any], error: str, *, stdio: bool = True) -> str | None:
    """The server was started, or its endpoint was reached, and there was no handshake."""
    if not stdio:
        return for_login(name) if _REFUSED.search(error) else None
    if "not answered within" in error:
        return (
            "It runs but does not answer. Is it an MCP server that uses standard input and output? If it only needs "
            f'longer to start, as the first run of a package does, give {name!r} a longer "timeout".'
        )
    return f"It was started, but there was no handshake. Run it by hand to see what it says: {by_hand(entry)}"


def for_login(name: str) -> str:
    """The server at a URL wants to know who is asking."""
    return f'Run `gaia mcp login {name}`, or give an "Authorization" in "headers".'


def by_hand(entry: Mapping[str, Any]) -> str:
    """The command line to type. As in the file: variables are not filled in."""
    args = entry.get("args")
    command = str(entry.get("command", ""))
    return command if args is None else shlex.join([command, *map(str, args)])
