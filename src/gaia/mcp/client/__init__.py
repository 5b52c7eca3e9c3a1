"""The MCP client: servers under supervision, their tools, their configuration."""

from gaia.mcp.client.authorization.config import AuthorizationRequest
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.protocol.elicitation import ElicitationAnswer, ElicitationRequest
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_result import ToolResult

__all__ = [
    "AuthorizationRequest",
    "ElicitationAnswer",
    "ElicitationRequest",
    "MCPClient",
    "MCPClientManager",
    "MCPTool",
    "ToolResult",
]
