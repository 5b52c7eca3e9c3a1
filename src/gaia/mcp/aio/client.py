"""`AsyncMCPClient`: the client of one MCP server, for asyncio."""

from __future__ import annotations

from typing import Any

from gaia.mcp.aio.calls import call_tool
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.supervision.client_request import CallOptions, OnProgress
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_result import ToolResult

__all__ = ["AsyncMCPClient"]


class AsyncMCPClient:
    """An `MCPClient` whose methods are awaited. For any event loop, and several at once."""

    sync: MCPClient

    @classmethod
    def over(cls, client: MCPClient) -> AsyncMCPClient:
        """The asynchronous form of a client that exists. Disconnecting it is still its owner's."""
        self = cls.__new__(cls)
        self.sync = client
        return self

    async def list_tools(self, refresh: bool = False) -> list[MCPTool]:
        return self.sync.list_tools(refresh)

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> ToolResult:
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        return await call_tool(self.sync.tool_calls, tool_name, arguments, options)
