"""`AsyncMCPClientManager`: several MCP servers, for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaia.mcp.aio.calls import call_tool
from gaia.mcp.aio.client import AsyncMCPClient
from gaia.mcp.aio.threads import in_thread, until_done
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.supervision.client_request import CallOptions, OnProgress
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_calls import failure
from gaia.mcp.client.tool_result import ToolResult
from gaia.mcp.errors import MCPError, NotConnected, ServerUnavailable

__all__ = ["AsyncMCPClientManager"]


class AsyncMCPClientManager:
    """An `MCPClientManager` whose methods are awaited. For any event loop, and several at once."""

    sync: MCPClientManager

    def __init__(self, config: MCPConfig | Mapping[str, Mapping[str, Any]] | None = None, **settings: Any) -> None:
        self.sync = MCPClientManager(config, **settings)

    @classmethod
    def over(cls, manager: MCPClientManager) -> AsyncMCPClientManager:
        """The asynchronous form of a manager that exists. Disconnecting it is still its owner's."""
        self = cls.__new__(cls)
        self.sync = manager
        return self

    async def __aenter__(self) -> AsyncMCPClientManager:
        try:
            await in_thread(self.sync.__enter__)
        except BaseException:
            await self.disconnect_all()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect_all()

    async def disconnect_all(self) -> None:
        await until_done(self.sync.disconnect_all, stops=True)

    def get_client(self, name: str) -> AsyncMCPClient | None:
        client = self.sync.get_client(name)
        return None if client is None else AsyncMCPClient.over(client)

    async def list_tools(self) -> list[MCPTool]:
        return self.sync.list_tools()

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> ToolResult:
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        try:
            route = self.sync.routes.get(name)
            if route is None:
                # Looking for a server that is about to start may wait.
                route = await in_thread(self.sync.route_of, name)
        except MCPError as error:
            return failure(error, name, None, arguments)
        try:
            return await call_tool(route.client.tool_calls, route.tool.name, arguments, options)
        except NotConnected as error:
            # The server was removed after the route had been found.
            return failure(ServerUnavailable(error.message), route.tool.name, None, arguments)
