"""The official SDK's client, as it is meant to be used: awaited. With ``--traced`` every call has a span."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driving import EchoCalls, drive_async, is_url, trace_if_asked


class Sdk(EchoCalls):
    def load(self) -> None:
        import mcp

        self._mcp = mcp
        trace_if_asked()

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[Any]:
        stdio = self._mcp.StdioServerParameters
        server = argv[0] if is_url(argv) else stdio(command=argv[0], args=argv[1:])
        async with self._mcp.Client(server) as client:
            await client.list_tools()
            yield client

    async def call(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.call_tool("echo", request)


if __name__ == "__main__":
    drive_async(Sdk())
