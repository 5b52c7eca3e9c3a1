"""`Gateway`: all servers of a manager behind one endpoint."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Mapping
from typing import Any

from gaia import __version__
from gaia.mcp.aio.loop_inbox import running_loop_inbox
from gaia.mcp.aio.threads import in_thread, stopping
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.asgi import Receive, Scope, Send, serve_request
from gaia.mcp.gateway.changes import Changes
from gaia.mcp.gateway.endpoint import Endpoint
from gaia.mcp.gateway.http_reply import KeepAlive
from gaia.mcp.gateway.known_servers import KnownServers
from gaia.mcp.gateway.operations.pages import OperationPages
from gaia.mcp.gateway.operations.reporting import clients_of, limits_of, session_status
from gaia.mcp.gateway.operations.status import GatewayStatus, ReloadStatus
from gaia.mcp.gateway.sessions import Sessions
from gaia.mcp.gateway.view import View

__all__ = ["Gateway"]

PATH = "/mcp"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Everything:
    def allows_server(self, _server: str) -> bool:
        return True

    def allows_tool(self, _server: str, _tool: str, _annotations: Any) -> bool:
        return True

    allows_prompt = allows_resource = lambda *_: True


_EVERYTHING = _Everything()


class Gateway:
    """An ASGI application that offers the tools, resources and prompts of several MCP servers to MCP clients.

    ``/mcp`` has everything, with names such as ``files_read``; ``/mcp/files`` has the server ``files`` alone, under its
    own names. Clients of both eras are answered.

    Everything runs on the event loop that runs `start`. `async with` starts and stops it, and so does a server of ASGI
    applications through ``lifespan``.
    """

    def __init__(
        self,
        servers: MCPClientManager | MCPConfig | Mapping[str, Mapping[str, Any]] | None = None,
        *,
        max_sessions: int = 1_000,
        session_idle_timeout: float = 1_800.0,
        keep_alive_interval: float = 15.0,
        name: str | None = None,
    ) -> None:
        """`servers` are a manager, which its owner connects and disconnects, or what a manager is made of.

        Sessions of clients of the handshake era end when they have not been used for `session_idle_timeout` seconds,
        and, with more than `max_sessions`, those that have been idle for longest. Responses that have been silent for
        `keep_alive_interval` seconds carry something that keeps proxies from closing them.

        `name` tells this gateway from others behind the same load balancer, which finds it in the ids of sessions:
        ``<name>.<random>``. It consists of letters, digits, ``-`` and ``_``.

        Nothing is started yet. Raises ValueError for a configuration, or a name, that cannot be used.
        """
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(f"name: must be 1 to 64 letters, digits, - and _, got {name!r}")
        self.name = name
        self.is_draining = False
        """Whether it is about to end, see `drain`."""
        self._started = time.monotonic()
        self._owns_manager = not isinstance(servers, MCPClientManager)
        self.manager = servers if isinstance(servers, MCPClientManager) else MCPClientManager(servers)
        """The manager of the servers."""
        self._servers = KnownServers(self.manager)
        self._changes = Changes(self._servers)
        self._keep_alive = KeepAlive()
        self._keep_alive_interval = keep_alive_interval
        self._sessions = Sessions(
            self._changes,
            time.monotonic,
            most=max_sessions,
            idle_seconds=session_idle_timeout,
            prefix="" if name is None else f"{name}.",
        )
        self.access: Access | None = None
        self.last_reload: ReloadStatus | None = None
        """When the files of the gateway were last read again, and what became of that."""
        self._views: dict[tuple[str, object], View] = {}
        self._ticking: asyncio.TimerHandle | None = None
        pages = OperationPages(self.manager.status, self.status, lambda: self.is_draining, self.access)
        self.endpoint = Endpoint(self._view_at, self._sessions, self._keep_alive, pages)
        """Answers requests; for HTTP servers that are no ASGI servers."""

    # Starting and stopping.

    async def start(self) -> None:
        """Follow the servers, and start them if they are the gateway's own; does not wait until they are ready."""
        self._servers.start(running_loop_inbox())
        self._tick()
        if self._owns_manager:
            await in_thread(functools.partial(self.manager.load_from_config, 0))

    async def stop(self) -> None:
        """End all sessions, and stop the servers if they are the gateway's own. Requests under way are cancelled."""
        if self._ticking is not None:
            self._ticking.cancel()
        self._sessions.end_all()
        self._changes.stop()
        self._servers.stop()
        if self._owns_manager:
            await stopping(self.manager.disconnect_all)

    def drain(self) -> None:
        """Prepare for `stop`: no new sessions, and the ends of streams that have no end of their own. On the loop.

        Requests under way go on, and so do requests in sessions that are open. ``/ready`` says 503 from now on.
        """
        self.is_draining = True
        self._sessions.close()
        self._changes.dismiss()

    def status(self, client: Principal | None = None) -> GatewayStatus:
        """What is known of the gateway now; for a `client`, what its profile allows it to see. On the loop."""
        now = time.monotonic()
        servers = [one for one in self.manager.status() if client is None or client.profile.allows_server(one.name)]
        seen = [session for session in self._sessions if client is None or session.owner == client]
        sessions = [session_status(session, self._path_of(session.view), now) for session in seen]
        return GatewayStatus(
            name=self.name or "",
            version=__version__,
            uptime=now - self._started,
            is_draining=self.is_draining,
            max_sessions=self._sessions.most,
            session_count=len(self._sessions),
            servers=servers,
            sessions=sessions,
            clients=[] if self.access is None else clients_of(self.access, sessions, client),
            limits=[] if self.access is None or client is not None else limits_of(self.access),
            reload=self.last_reload if client is None else None,
        )

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _tick(self) -> None:
        self._ticking = asyncio.get_running_loop().call_later(self._keep_alive_interval, self._tick)
        self._keep_alive.sweep()
        self._sessions.end_idle()

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
            view = self._views[path, principal] = View(self._servers, self._changes, server or None, _EVERYTHING)
        return view

    def _path_of(self, view: View) -> str:
        return next((path for (path, _), one in self._views.items() if one is view), PATH)

    def _server_at(self, path: str) -> str | None:
        """The name of the server at a path, "" for all of them; None if there is nothing."""
        if path == PATH:
            return ""
        name = path.removeprefix(f"{PATH}/")
        return name if name != path and name in self._servers.names() else None
