"""gaia-mcp as asyncio programs use it: the manager of `gaia.mcp.aio`. With ``--traced`` every call has a span."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driving import drive_async, is_url


class AsyncGaia:
    def load(self) -> None:
        from gaia.mcp.aio import AsyncMCPClientManager

        self._manager_class = AsyncMCPClientManager
        if "--traced" in sys.argv:
            from gaia_traced_driver import batching_provider
            from opentelemetry import trace

            trace.set_tracer_provider(batching_provider(sampled=True))

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[Any]:
        entry: dict[str, Any] = {"url": argv[0]} if is_url(argv) else {"command": argv[0], "args": argv[1:]}
        async with self._manager_class({"s0": entry}) as manager:
            yield manager

    def request(self, text: str) -> dict[str, Any]:
        return {"text": text}

    async def call(self, client: Any, request: dict[str, Any]) -> Any:
        return await client.call_tool("mcp_s0_echo", request)

    def is_echo(self, request: dict[str, Any], answer: Any) -> bool:
        content: list[dict[str, str]] = answer["content"]
        return content[0]["text"] == request["text"]


if __name__ == "__main__":
    drive_async(AsyncGaia())
