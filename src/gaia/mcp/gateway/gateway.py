"""`Gateway`: all servers of a manager behind one endpoint."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from gaia.mcp.aio.loop_inbox import running_loop_inbox
from gaia.mcp.aio.threads import in_thread, stopping
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.gateway.asgi import Receive, Scope, Send, serve_request
from gaia.mcp.gateway.endpoint import Endpoint
from gaia.mcp.gateway.known_servers import KnownServers
from gaia.mcp.gateway.sessions import Sessions
from gaia.mcp.gateway.view import View

__all__ = ["Gateway"]

PATH = "/mcp"


class Gateway:
    """An ASGI application that offers the tools, resources and prompts of several MCP servers to MCP clients.

    ``/mcp`` has everything, with names such as ``files_read``; ``/mcp/files`` has the server ``files`` alone, under its
    own names. Clients of both eras are answered.

    Everything runs on the event loop that runs `start`. `async with` starts and stops it, and so does a server of ASGI
    applications through ``lifespan``.
    """

    def __init__(self, servers: MCPClientManager | MCPConfig | Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`servers` are a manager, which its owner connects and disconnects, or what a manager is made of.

        Nothing is started yet. Raises ValueError for a configuration that cannot be used.
        """
        self._owns_manager = not isinstance(servers, MCPClientManager)
        self.manager = servers if isinstance(servers, MCPClientManager) else MCPClientManager(servers)
        """The manager of the servers."""
        self._servers = KnownServers(self.manager)
        self._sessions = Sessions()
        self._views: dict[tuple[str, object], View] = {}
        self.endpoint = Endpoint(self._view_at, self._sessions)
        """Answers requests; for HTTP servers that are no ASGI servers."""

    # Starting and stopping.

    async def start(self) -> None:
        """Follow the servers, and start them if they are the gateway's own; does not wait until they are ready."""
        self._servers.start(running_loop_inbox())
        if self._owns_manager:
            await in_thread(functools.partial(self.manager.load_from_config, 0))

    async def stop(self) -> None:
        """End all sessions, and stop the servers if they are the gateway's own. Requests under way are cancelled."""
        self._sessions.end_all()
        self._servers.stop()
        if self._owns_manager:
            await stopping(self.manager.disconnect_all)

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Serving.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] == "http":
            await serve_request(self.endpoint, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _view_at(self, path: str, principal: object) -> View | None:
        view = self._views.get((path, principal))
        if view is None:
            server = self._server_at(path)
            if server is None:
                return None
            view = self._views[path, principal] = View(self._servers, server or None, principal)
        return view

    def _server_at(self, path: str) -> str | None:
        """The name of the server at a path, "" for all of them; None if there is nothing."""
        if path == PATH:
            return ""
        name = path.removeprefix(f"{PATH}/")
        return name if name != path and name in self._servers.names() else None
