"""What an agent tells of its MCP servers when they are connected: their tools, and what keeps a server from working."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gaia.mcp.supervision.events import ServerState
from gaia.runtime.untrusted_text import indented, one_line

if TYPE_CHECKING:
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager

_ON_THE_WAY = (ServerState.CREATED, ServerState.STARTING, ServerState.AUTHORIZING)
_NAMED = 100
"""How many tools of a server are named at most."""


def connected_line(client: MCPClient, file: Path | None = None) -> str:
    """A line about a connected server: the file that its entry comes from, if any, and the names of its tools."""
    names = [one_line(tool.name) for tool in client.list_tools()]
    count = f"{len(names)} tool{'' if len(names) == 1 else 's'}"
    origin = "" if file is None else f" from {file}"
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"✓ {client.name}{origin} ({count})" + (": " + ", ".join(names[:_NAMED] + more) if names else "")


def load_summary(manager: MCPClientManager) -> str:
    """One line for each configured server that is not disabled; empty if there is none."""
    connected = manager.list_servers()
    statuses = {status.name: status for status in manager.status()}
    enabled = [name for name, entry in manager.config.get_servers().items() if not entry.get("disabled")]
    lines = []
    # Those with a status include what cannot be used as an entry.
    for name in dict.fromkeys([*enabled, *statuses]):
        client = manager.get_client(name) if name in connected else None
        if client is not None:
            lines.append(connected_line(client, manager.config.source_of(name)))
        else:
            status = statuses.get(name)
            if status is not None and status.state in _ON_THE_WAY:
                lines.append(f"… {name} is {status.state.value}; its tools come when it is ready")
                continue
            reason = f": {status.last_error}" if status is not None and status.last_error else ""
            again = "; it is tried again" if status is not None and status.retry_in is not None else ""
            lines.append(indented(f"✗ {name} failed to connect{reason}{again}"))
    return "\n".join(lines)
