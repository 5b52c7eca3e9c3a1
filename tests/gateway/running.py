"""A gateway, or another ASGI application, served on a free port of this machine in the test's own event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import uvicorn

from gaia.mcp.client import MCPClientManager
from gaia.mcp.gateway import Gateway
from tests.waiting import PATIENCE


@contextlib.asynccontextmanager
async def running(servers: Mapping[str, Any] | MCPClientManager | Gateway) -> AsyncIterator[str]:
    """The gateway's URL, without a path."""
    gateway = servers if isinstance(servers, Gateway) else Gateway(servers)
    async with serving(gateway) as url:
        yield url


@contextlib.asynccontextmanager
async def serving(application: Any) -> AsyncIterator[str]:
    """The URL of an ASGI application, without a path."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, lifespan="on", log_config=None, access_log=False, ws="none")
        server = uvicorn.Server(config)
        # The test's process has its own handlers of signals.
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, PATIENCE)
