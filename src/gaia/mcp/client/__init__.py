"""The MCP client: servers under supervision, their tools, their configuration.

A name is loaded on first use: the host of a placed server supervises it with modules of this package, and begins sooner
without the client itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.mcp.authorization.config import AuthorizationRequest
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager
    from gaia.mcp.protocol.server_questions import ElicitationAnswer, ElicitationRequest
    from gaia.mcp.tools.tool import MCPTool
    from gaia.mcp.tools.tool_result import ToolResult

__all__ = [
    "AuthorizationRequest",
    "ElicitationAnswer",
    "ElicitationRequest",
    "MCPClient",
    "MCPClientManager",
    "MCPTool",
    "ToolResult",
]

_HOMES = {
    "AuthorizationRequest": "gaia.mcp.authorization.config",
    "ElicitationAnswer": "gaia.mcp.protocol.server_questions",
    "ElicitationRequest": "gaia.mcp.protocol.server_questions",
    "MCPClient": "gaia.mcp.client.mcp_client",
    "MCPClientManager": "gaia.mcp.client.mcp_client_manager",
    "MCPTool": "gaia.mcp.tools.tool",
    "ToolResult": "gaia.mcp.tools.tool_result",
}
"""The module of each name."""


if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        """What a shell completes, loaded or not."""
        return sorted({*globals(), *__all__})
