"""The servers of a manager as the page shows them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.transports.stdio import StdioTransport

__all__ = ["describe", "statuses"]


def statuses(manager: MCPClientManager) -> list[dict[str, Any]]:
    """A line for each server: the configured ones in their order, then those that were added otherwise.

    ``ready_since`` is in seconds since the epoch, where `ServerStatus` has the time passed: it stays the same.
    """
    known = {status.name: status for status in manager.status()}
    configured = manager.config.get_servers()
    found = []
    for name in dict.fromkeys((*configured, *known)):
        if name in known:
            line = msgspec.to_builtins(known[name])
            uptime = line.pop("uptime")
            line["ready_since"] = None if uptime is None else round(time.time() - uptime)
            found.append(line)
        else:
            off = bool(configured[name].get("disabled"))
            found.append({"name": name, "state": "disabled" if off else "not started", "ready_since": None})
    return found


def describe(manager: MCPClientManager, name: str) -> dict[str, Any] | None:
    """Everything about one server; None if there is none of this name. ``stderr`` is None where there is none."""
    line = next((line for line in statuses(manager) if line["name"] == name), None)
    if line is None:
        return None
    client = manager.get_client(name)
    source = manager.config.source_of(name)
    about: dict[str, Any] = {"tools": [], "stderr": None, "server_info": {}, "instructions": None, "capabilities": []}
    if client is not None:
        about = {
            "tools": _tools(client),
            "stderr": client.transport.stderr_tail() if isinstance(client.transport, StdioTransport) else None,
            "server_info": client.server_info,
            "instructions": client.instructions,
            "capabilities": sorted(client.capabilities),
        }
    return {**line, **about, "source": None if source is None else str(source)}


def _tools(client: MCPClient) -> list[dict[str, Any]]:
    """What is offered, and the bare names of what is withheld, with the reason."""
    # A server that restarts keeps its tools. One that has never listed any is not waited for.
    offered = client.list_tools() if client.is_connected() or client.status.tool_count else []
    withheld = dict.fromkeys(client.denied_tools, "denied") | dict.fromkeys(client.blocked_tools, "not approved")
    found = [_tool(tool) for tool in offered] + [{"name": name, "denied": why} for name, why in withheld.items()]
    return sorted(found, key=lambda tool: str(tool["name"]))


def _tool(tool: MCPTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "denied": None,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "annotations": tool.annotations,
    }
