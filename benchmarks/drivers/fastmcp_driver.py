"""fastmcp's client, as it is meant to be used: awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driving import EchoCalls, drive_async, is_url


class FastMCP(EchoCalls):
    def load(self) -> None:
        from fastmcp import Client
        from fastmcp.client import transports

        self._client_class, self._transports = Client, transports

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[Any]:
        of = self._transports
        transport = (
            of.StreamableHttpTransport(argv[0])
            if is_url(argv)
            # Otherwise its servers outlive their clients.
            else of.StdioTransport(argv[0], argv[1:], keep_alive=False)
        )
        async with self._client_class(transport) as client:
            await client.list_tools()
            yield client

    async def call(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.call_tool("echo", request)


if __name__ == "__main__":
    drive_async(FastMCP())
