"""`Gateway`: all servers of a manager behind one endpoint."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gaia import __version__
from gaia.mcp.aio.threads import in_thread, stopping
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.clients_file import ClientsFile, read_clients_file
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.shared_limits import SharedLimits
from gaia.mcp.gateway.clients.sessions import Session, Sessions
from gaia.mcp.gateway.front.asgi import serve_request
from gaia.mcp.gateway.front.endpoint import PATH, Endpoint
from gaia.mcp.gateway.front.http_reply import KeepAlive
from gaia.mcp.gateway.front.line_client import LineClient
from gaia.mcp.gateway.operations.pages import OperationPages
from gaia.mcp.gateway.operations.pattern_check import PatternCheck
from gaia.mcp.gateway.operations.status import GatewayStatus, ReloadStatus, clients_of, limits_of, session_status
from gaia.mcp.gateway.upstream.sealing import StateSeal
from gaia.mcp.gateway.views.notifier import Audience, Notifier
from gaia.mcp.gateway.views.upstream_servers import UpstreamServers
from gaia.mcp.gateway.views.view import View
from gaia.runtime.loop_work import running_loop_work
from gaia.serving.guards import Receive, Scope, Send
from gaia.serving.options import DEFAULT_MAX_BODY, HttpOptions

_NOT_STARTED = (
    "the gateway is not started: where nothing runs its lifespan, such as for a mounted application, "
    "use `async with gateway:` around the serving"
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Gateway:
    """An ASGI application that offers the tools, resources and prompts of several MCP servers to MCP clients.

    ``/mcp`` offers everything, with names such as ``files_read``. ``/mcp/files`` offers the server ``files`` alone,
    under its own names. The gateway answers clients of both eras.

    Everything runs on the event loop that runs `start`. `async with` starts and stops the gateway, and so does an ASGI
    server through ``lifespan``.
    """

    def __init__(
        self,
        servers: MCPClientManager | MCPConfig | Mapping[str, Mapping[str, Any]] | None = None,
        *,
        max_sessions: int = 1_000,
        session_idle_timeout: float = 1_800.0,
        keep_alive_interval: float = 15.0,
        name: str | None = None,
        clients: ClientsFile | str | os.PathLike[str] | None = None,
        audit: str | os.PathLike[str] | None = None,
        max_body: int = DEFAULT_MAX_BODY,
        state_key: bytes | Sequence[bytes] | None = None,
    ) -> None:
        """`servers` is a manager, which its owner connects and disconnects, or the configuration for a manager.

        Sessions of clients of the handshake era end after `session_idle_timeout` seconds without use. With more than
        `max_sessions`, the sessions that were idle longest end. A response that was silent for `keep_alive_interval`
        seconds carries a comment, so that proxies do not close it.

        `name` distinguishes gateways behind one load balancer, which finds it at the beginning of the ids of sessions:
        ``<name>.…``. It consists of letters, digits, ``-`` and ``_``.

        `clients` is the clients file, or its contents: the clients that may use the gateway, each with its token and
        its profile. Without it each request may do everything, and no other machine should be able to reach the
        gateway.

        `audit` is a file, to which the gateway writes a line for each call.

        `state_key` is 32 secret random bytes. Gateways with the same key, behind one load balancer, go on with each
        other's sessions, handles and rounds (``requestState``), which clients keep for them, encrypted. Without it,
        each accepts only its own. Of two keys, the first one encrypts, and both decrypt.

        A body is refused if it has more than `max_body` bytes, or takes more than a minute to arrive.

        Nothing is started yet. Raises ValueError for an unusable configuration, name or key.
        """
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(f"name: must be 1 to 64 letters, digits, - and _, got {name!r}")
        self.name = name
        self._max_body = max_body
        self.is_draining = False
        self._started = time.monotonic()
        self._owns_manager = not isinstance(servers, MCPClientManager)
        self.manager = servers if isinstance(servers, MCPClientManager) else MCPClientManager(servers)
        seal = StateSeal(state_key)
        self._servers = UpstreamServers(self.manager, seal)
        self._changes = Notifier(self._servers)
        self._keep_alive = KeepAlive()
        self._keep_alive_interval = keep_alive_interval
        self._sessions = Sessions(
            self._changes,
            time.monotonic,
            most=max_sessions,
            idle_seconds=session_idle_timeout,
            prefix="" if name is None else f"{name}.",
            seal=seal if seal.is_shared else None,
        )
        self._sessions.on_ended = self._servers.release
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None
        if clients is not None and not isinstance(clients, ClientsFile):
            clients = read_clients_file(Path(clients))
        self._clients = clients
        self._patterns = None if clients is None else PatternCheck(clients)
        self._shared = None if clients is None or clients.shared is None else SharedLimits(clients.shared)
        self._audit_path = None if audit is None else Path(audit)
        self._audit_file: AuditFile | None = None
        self.access: Access | None = None
        """The clients and their limits; None before the start, and without a clients file."""
        self.last_reload: ReloadStatus | None = None
        self._views: dict[tuple[str, Profile], View] = {}
        self._ticking: asyncio.TimerHandle | None = None
        checks = self._servers.checks
        pages = OperationPages(self.manager.status, self.status, lambda: self.is_draining, checks)
        self.endpoint = Endpoint(self._view_at, self._sessions, self._keep_alive, pages, checks)
        """Answers requests of HTTP servers that are not ASGI servers."""

    # Starting and stopping.

    def open_audit(self) -> None:
        """Open the audit file, which `start` would otherwise do. Raises ConfigError if it cannot be written."""
        if self._audit_path is not None and self._audit_file is None:
            self._audit_file = AuditFile(self._audit_path)

    async def start(self) -> None:
        """Follow the servers, and start them if the gateway owns them. Does not wait until they are ready.

        Raises ConfigError if the audit file cannot be written.
        """
        self._loop, checks = asyncio.get_running_loop(), self._servers.checks
        if self._clients is not None:
            self.access = Access(self._clients, self._loop)
            self.endpoint.access = self.access
            checks.limits = self.access.limits
            if self._shared is not None:
                checks.limits.share(self._shared)
                self._shared.start()
            checks.shares.settings = self._clients.limits
        self.open_audit()
        if self._audit_file is not None:
            # The name distinguishes the lines of several gateways that are collected in one place.
            checks.audit = Audit(self._audit_file, self._loop, self.name or socket.gethostname())
            checks.refusals.audit, self._audit_file = checks.audit, None
        self._servers.start(running_loop_work())
        self._tick()
        if self._owns_manager:
            self.manager._engine.factory.relay()
            await in_thread(functools.partial(self.manager.load_from_config, 0))

    async def stop(self) -> None:
        """End all sessions, and stop the servers if the gateway owns them. Open requests are cancelled."""
        if self._ticking is not None:
            self._ticking.cancel()
        self._sessions.end_all()
        self._changes.stop()
        self.give_up()
        self._servers.stop()
        if self._stopping is not None:
            await self._stopping
        if self._shared is not None:
            await self._shared.stop()
        if self.access is not None:
            self.access.close()
        if (audit := self._servers.checks.audit) is not None:
            audit.close()

    def reopen_audit(self) -> None:
        """Write to a new audit file if another program has moved the old one. On the loop."""
        if (audit := self._servers.checks.audit) is not None:
            audit.reopen()

    def change_clients(self, clients: ClientsFile) -> None:
        """Use other clients, profiles and limits. On the loop, after `start`.

        Sessions and subscriptions end if their client no longer exists, or its profile has changed. A gateway without a
        clients file ignores the change.
        """
        if self.access is None:
            return
        self.access.change(clients)
        self._servers.checks.shares.settings = clients.limits
        self._patterns = PatternCheck(clients)
        # A view belongs to one version of a profile.
        self._views = {key: view for key, view in self._views.items() if self._is_current(*key, view)}
        access, in_use = self.access, set(self._views.values())

        def has_changed(audience: Audience) -> bool:
            return audience.owner is None or not access.is_current(audience.owner) or audience.view not in in_use

        for session in [session for session in self._sessions if has_changed(session)]:
            self._sessions.end(session)
        self._changes.dismiss(has_changed)
        self._end_refused_streams(access)

    def _end_refused_streams(self, access: Access) -> None:
        """End streams whose tokens are no longer accepted. A session continues: each of its requests has a token."""

        def is_refused(owner: Principal | None) -> bool:
            return owner is None or not access.admits(owner)

        for stream in [stream for stream in self._keep_alive.streams if is_refused(stream.owner)]:
            stream.end()
        self._changes.dismiss(lambda one: not isinstance(one, Session) and is_refused(one.owner))

    def _is_current(self, path: str, profile: Profile, view: View) -> bool:
        is_known = self.access is None or self.access.profile(profile.name) == profile
        return is_known and self._found_at(path, profile) == (view.server, view.profile)

    def change_clients_soon(self, clients: ClientsFile) -> None:
        """`change_clients` from another thread, after `start`."""
        assert self._loop is not None, "the gateway is started"
        self._loop.call_soon_threadsafe(self.change_clients, clients)

    def drain(self) -> None:
        """Prepare for `stop`: open no sessions, and end streams that have no end of their own. On the loop.

        Open requests continue, and open sessions accept further ones. ``/ready`` answers 503 from now on.
        """
        self.is_draining = True
        self._sessions.close()
        self._changes.dismiss()

    def status(self, client: Principal | None = None) -> GatewayStatus:
        """The current status of the gateway; for a `client`, the part that the client may see. On the loop."""
        now = time.monotonic()
        servers = [one for one in self._servers.statuses() if client is None or client.profile.allows_server(one.name)]
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

    def give_up(self) -> None:
        """Stop the servers, if the gateway owns them. Open calls end with an error. On the loop.

        Called after `drain`, when the time for these calls is over. `stop` follows.
        """
        if self._stopping is None:
            ends = self._servers.end_instances()
            if self._owns_manager:
                # The instances end at the same time as the manager's servers.
                ends.insert(0, self.manager.disconnect_all)
            self._stopping = asyncio.get_running_loop().create_task(stopping(lambda: [end() for end in ends]))

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _tick(self) -> None:
        self._ticking = asyncio.get_running_loop().call_later(self._keep_alive_interval, self._tick)
        if self.access is not None:
            self._end_refused_streams(self.access)
        self._keep_alive.sweep()
        self._sessions.end_idle()
        self._servers.handles.expire()
        if self._patterns is not None and not self._patterns.is_done:
            self._patterns.look(self._servers.tool_names())

    # Serving.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self._loop is None:
                # Before the start, the gateway has no access control and knows no server.
                raise RuntimeError(_NOT_STARTED)
            await serve_request(
                self.endpoint, scope, receive, send, max_body=self._max_body, body_seconds=HttpOptions.body_timeout
            )
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

    def line_client(self, write: Callable[[bytes], None]) -> LineClient:
        """A client that exchanges messages as lines; `write` sends a message to it. On the loop, after `start`."""
        view = self._view_at(PATH, None)
        assert view is not None, "everything is always there"
        return LineClient(view, self._sessions, write)

    def _view_at(self, path: str, client: Principal | None) -> View | None:
        profile = EVERYTHING if client is None else client.profile
        view = self._views.get((path, profile))
        if view is None:
            found = self._found_at(path, profile)
            if found is None:
                return None
            server, seen = found
            view = self._views[path, profile] = View(self._servers, self._changes, server, seen)
        return view

    def _path_of(self, view: View) -> str:
        return next((path for (path, _), one in self._views.items() if one is view), PATH)

    def _found_at(self, path: str, profile: Profile) -> tuple[str | None, Profile] | None:
        """The server at a path (None for all of them) and the profile there; None if the path does not exist."""
        if path == PATH:
            return None, profile
        name = path.removeprefix(f"{PATH}/")
        if name == path:
            return None
        if name.startswith("@"):
            named = None if self.access is None else self.access.profile(name[1:])
            return None if named is None else (None, profile.narrowed_to(named))
        return (name, profile) if name in self._servers.names() and profile.allows_server(name) else None
