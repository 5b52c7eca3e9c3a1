"""fastmcp's client, as it is meant to be used: awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driving import drive_async
from sdk_calls import SdkCalls


class FastMCP(SdkCalls):
    def load(self) -> None:
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        self._client_class, self._transport_class = Client, StdioTransport

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[Any]:
        async with self._client_class(self._transport_class(argv[0], argv[1:])) as client:
            await client.list_tools()
            yield client


if __name__ == "__main__":
    drive_async(FastMCP())
