"""The official SDK's client, as it is meant to be used: awaited. With ``--traced`` every call has a span."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driving import drive_async, is_url
from sdk_calls import SdkCalls


class Sdk(SdkCalls):
    def load(self) -> None:
        import mcp

        self._mcp = mcp
        if "--traced" in sys.argv:
            from gaia_traced_driver import batching_provider
            from opentelemetry import trace

            trace.set_tracer_provider(batching_provider(sampled=True))

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[Any]:
        stdio = self._mcp.StdioServerParameters
        server = argv[0] if is_url(argv) else stdio(command=argv[0], args=argv[1:])
        async with self._mcp.Client(server) as client:
            await client.list_tools()
            yield client


if __name__ == "__main__":
    drive_async(Sdk())
