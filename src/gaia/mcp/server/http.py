"""Serves an agent at ``/mcp`` over Streamable HTTP, in both eras of the protocol."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from gaia.agents.base.mcp_context import ServableAgent
from gaia.mcp.server.factory import ServedAgent, create_server
from gaia.serving.http import run_http
from gaia.serving.options import HttpOptions

PATH = "/mcp"


def create_app(served: ServedAgent, options: HttpOptions) -> Starlette:
    """The application without its guard. If it is mounted elsewhere, that server must check Host, Origin and token."""
    sessions = StreamableHTTPSessionManager(app=served.server, max_request_body_size=options.max_body)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with served.running(), sessions.run():
            yield

    return Starlette(routes=[Route(PATH, endpoint=StreamableHTTPASGIApp(sessions))], lifespan=lifespan)


def serve(
    agent: ServableAgent,
    options: HttpOptions | None = None,
    started: Callable[[str], None] | None = None,
    **limits: Any,
) -> None:
    """Serve `agent` until SIGTERM or SIGINT. `limits` go to `create_server`."""
    options = options or HttpOptions()
    options.check()
    served = create_server(agent, transport="tcp", **limits)
    run_http(
        create_app(served, options),
        options,
        None if started is None else lambda url: started(url + PATH),
        served.changes.listen.close,
    )
