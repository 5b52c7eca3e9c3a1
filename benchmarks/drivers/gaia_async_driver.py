"""gaia-mcp as asyncio programs use it: the manager of `gaia.mcp.aio`. With ``--traced`` every call has a span."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driving import EchoCalls, drive_async, entry_of, trace_if_asked


class AsyncGaia(EchoCalls):
    def load(self) -> None:
        from gaia.mcp.aio import AsyncMCPClientManager

        self._manager_class = AsyncMCPClientManager
        trace_if_asked()

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[Any]:
        async with self._manager_class({"s0": entry_of(argv)}) as manager:
            yield manager

    async def call(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.call_tool("mcp_s0_echo", request)


if __name__ == "__main__":
    drive_async(AsyncGaia())
