"""The least gateway that the official SDK makes: its low-level server passes on to its client.

    mcp_gateway.py CONFIG PORT [--traced]

Answers are JSON, which is the quicker of its two ways to answer. With ``--traced`` it has a tracer provider that
records everything and throws it away.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from driving import trace_if_asked


async def main(config: str, port: str) -> None:
    import mcp
    import uvicorn
    from mcp.server.lowlevel import Server

    ((_, entry),) = json.loads(Path(config).read_text())["mcpServers"].items()
    async with mcp.Client(mcp.StdioServerParameters(command=entry["command"], args=entry["args"])) as client:

        async def list_tools(_context: Any, _params: Any) -> Any:
            return await client.list_tools()

        async def call_tool(_context: Any, params: Any) -> Any:
            return await client.call_tool(params.name, params.arguments)

        server = Server("gateway", on_list_tools=list_tools, on_call_tool=call_tool)
        application = server.streamable_http_app(json_response=True)
        await uvicorn.Server(uvicorn.Config(application, port=int(port), log_level="error", access_log=False)).serve()


if __name__ == "__main__":
    trace_if_asked()
    import uvloop

    uvloop.install()
    asyncio.run(main(*sys.argv[1:3]))
