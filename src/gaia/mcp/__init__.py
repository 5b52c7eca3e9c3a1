"""Use tools of MCP servers: `MCPClientMixin` in an agent, `MCPClientManager` for several servers, `MCPClient` for one.

The classes are loaded on first use, so that importing this package, or running one of its modules, loads no client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient, MCPClientManager
    from gaia.mcp.mixin import MCPClientMixin

__all__ = ["MCPClient", "MCPClientManager", "MCPClientMixin"]

_HOMES = {
    "MCPClient": "gaia.mcp.client.mcp_client",
    "MCPClientManager": "gaia.mcp.client.mcp_client_manager",
    "MCPClientMixin": "gaia.mcp.mixin",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
