"""Servers that an agent's code declares: what an entry must have, and that it counts before those of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig

__all__ = ["check_entry", "put_over_files"]


def check_entry(name: str, entry: object) -> None:
    """Raise ValueError if `entry` cannot be the one of a server: the mistake is in the code that declares it."""
    if not isinstance(entry, Mapping):
        raise ValueError(  # noqa: TRY004 - the specification says ValueError
            f"MCP server {name!r} needs a config dict such as {{'command': 'uvx'}}, got {type(entry).__name__}"
        )
    if not entry.get("command") and not entry.get("url"):
        raise ValueError(f"The config of MCP server {name!r} needs a 'command' (or the 'url' of a running server)")


def put_over_files(config: MCPConfig, servers: Mapping[str, Mapping[str, Any]]) -> MCPConfig:
    """Put `servers` into the memory of `config`, over what its files say; returns `config`."""
    for name, entry in servers.items():
        config.add_server(name, entry, save=False)
    return config
