"""The clients for asyncio: `AsyncMCPClientManager` for several servers, `AsyncMCPClient` for one.

They have the methods of `MCPClientManager` and `MCPClient`, to be awaited, and use these: the same engine supervises
the servers, on threads of its own, and no thread waits for a call.

- `manager` and `client` are the faces; `event_stream` has events for ``async for``.
- `calls` is the driver of a request for a task, over `SubmittedRequest`.
- `threads` runs functions that wait in a thread: connecting, disconnecting, listing.

Invariants: a cancelled task cancels its request, and the server is told. Only the loop's own thread touches its tasks.
What ends servers runs to its end, even if its task is cancelled.
"""

from gaia.mcp.aio.client import AsyncMCPClient, AsyncPinnedClient
from gaia.mcp.aio.event_stream import EventStream
from gaia.mcp.aio.manager import AsyncMCPClientManager

__all__ = ["AsyncMCPClient", "AsyncMCPClientManager", "AsyncPinnedClient", "EventStream"]
