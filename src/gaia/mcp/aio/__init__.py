"""The clients for asyncio: `AsyncMCPClientManager` for several servers, `AsyncMCPClient` for one.

They have the methods of `MCPClientManager` and `MCPClient` as coroutines, and use these: the same engine supervises the
servers, on its own threads, and no thread waits for a call.

- `manager` and `client` are the public classes; `event_stream` has events for ``async for``.
- `calls` drives a request for a task, over `SubmittedRequest`.
- `disconnects` ends what a web handler does when its client leaves.
- `threads` runs functions that wait in a thread: connecting, disconnecting, listing.

Invariants: a cancelled task cancels its request, and the server is notified. Only the loop's own thread touches its
tasks. A function that ends servers runs to its end, even if its task is cancelled.
"""

from gaia.mcp.aio.client import AsyncMCPClient, AsyncPinnedClient
from gaia.mcp.aio.disconnects import cancel_on_disconnect
from gaia.mcp.aio.event_stream import EventStream
from gaia.mcp.aio.manager import AsyncMCPClientManager

__all__ = ["AsyncMCPClient", "AsyncMCPClientManager", "AsyncPinnedClient", "EventStream", "cancel_on_disconnect"]
