"""`AsyncPinnedClient`: calls that all go to the same replica of a server, for asyncio."""

from __future__ import annotations

from typing import Any

from gaia.mcp.aio.calls import call_tool, run
from gaia.mcp.aio.threads import in_thread
from gaia.mcp.client.pinned_client import PinnedClient
from gaia.mcp.requests.exchange import CallOptions, OnProgress
from gaia.mcp.supervision.status import PlacementStatus
from gaia.mcp.tools.tool_result import ToolResult


class AsyncPinnedClient:
    """`PinnedClient` for asyncio: the same methods, results and errors, to be awaited. ``async with`` closes it."""

    sync: PinnedClient
    """The synchronous handle that does the work."""

    def __init__(self, handle: PinnedClient) -> None:
        """Only for `AsyncMCPClient.pinned`."""
        self.sync = handle

    @property
    def placement(self) -> PlacementStatus | None:
        """Where the replica runs."""
        return self.sync.placement

    @property
    def is_lost(self) -> bool:
        """Whether the replica cannot be reached; a call would raise `SessionLost`."""
        return self.sync.is_lost

    def close(self) -> None:
        """Accept no more calls; those in flight go on. The replica is not affected."""
        self.sync.close()

    async def __aenter__(self) -> AsyncPinnedClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Call a tool at the replica; see `AsyncMCPClient.call_tool` and `PinnedClient.call_tool`."""
        return await call_tool(self.sync._tool_calls, tool_name, arguments, CallOptions(timeout, on_progress))

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """See `MCPClient.read_resource`. Raises SessionLost."""
        return await run(self.sync._tool_calls.trips, self.sync._features.read_resource(uri))

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """See `MCPClient.get_prompt`. Raises SessionLost."""
        if self.sync._features.prompts_are_pinned:
            return await in_thread(self.sync.get_prompt, name, arguments)
        return await run(self.sync._tool_calls.trips, self.sync._features.get_prompt(name, arguments))
