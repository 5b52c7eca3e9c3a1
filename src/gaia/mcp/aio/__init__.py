"""The clients for asyncio: `AsyncMCPClientManager` for several servers, `AsyncMCPClient` for one.

They have the methods of `MCPClientManager` and `MCPClient`, to be awaited, and use these: servers are supervised by the
same engine, on threads of its own, and no thread waits for a call.
"""

from gaia.mcp.aio.client import AsyncMCPClient
from gaia.mcp.aio.event_stream import EventStream
from gaia.mcp.aio.manager import AsyncMCPClientManager
from gaia.mcp.aio.pinned_client import AsyncPinnedClient

__all__ = ["AsyncMCPClient", "AsyncMCPClientManager", "AsyncPinnedClient", "EventStream"]
