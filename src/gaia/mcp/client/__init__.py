"""The MCP client: servers under supervision, their tools, their configuration.

A name is loaded on first use: the host of a placed server supervises it with modules of this package, and begins sooner
without the client itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

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

if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "gaia.mcp.authorization.config": ("AuthorizationRequest",),
            "gaia.mcp.client.mcp_client": ("MCPClient",),
            "gaia.mcp.client.mcp_client_manager": ("MCPClientManager",),
            "gaia.mcp.protocol.server_questions": ("ElicitationAnswer", "ElicitationRequest"),
            "gaia.mcp.tools.tool": ("MCPTool",),
            "gaia.mcp.tools.tool_result": ("ToolResult",),
        },
    )
