"""The MCP client: servers under supervision, their tools, their configuration."""

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.tool import MCPTool

__all__ = ["MCPClient", "MCPClientManager", "MCPTool"]
