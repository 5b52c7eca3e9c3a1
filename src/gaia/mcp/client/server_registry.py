"""The servers of a manager (starting, connected, tried again or failed), and the routes to their tools."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.readiness import Readiness
from gaia.mcp.errors import ServerUnavailable, ToolDenied, UnknownTool
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.naming import assign, owner_of
from gaia.mcp.tools.tool import MCPTool
from gaia.runtime.locks import Latch, reentrant_lock

_ASK_AGAIN_SECONDS = 0.05
_FAILED = (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION)


class NameTaken(ValueError):
    """Another server has this name."""


class Route(NamedTuple):
    client: MCPClient
    tool: MCPTool


class _Start:
    def __init__(self) -> None:
        self.process = os.getpid()
        """A forked child has none of its parent's threads."""
        self.thread = threading.get_ident()
        self.unwanted = False
        self.came_up = False
        """Whether the server was ready, perhaps only at a second attempt."""
        self.over = Latch()


class ServerRegistry:
    """Clients by the names of their servers. A name is reserved first, then its client is connected, and later dropped.

    Thread-safe: starts, removals and new tool lists come from many threads, in any order.
    """

    def __init__(self, readiness: Readiness, on_joined: Callable[[str, tuple[MCPTool, ...]], None]) -> None:
        """``on_joined(name, tools)`` is called, without the lock, when a server's tools become callable."""
        self._readiness = readiness
        self._on_joined = on_joined
        self._lock = reentrant_lock()
        """Guards everything below. Never held while a thread waits for a server, or while user code runs."""
        self.connected: dict[str, MCPClient] = {}
        """Other modules may read it without the lock, but must not change it."""
        self.routes: dict[str, Route] = {}
        """Routes to the tools of all connected servers. Replaced as a whole, so that calls read it without the lock."""
        self._starting: dict[str, MCPClient] = {}
        self._waiting: dict[str, MCPClient] = {}
        """Clients whose servers failed to connect and are tried again. Each joins when its server is ready."""
        self._replaced: dict[MCPClient, MCPClient] = {}
        """By client: the failed client whose name it took, which must end before this one starts."""
        self._connecting: dict[MCPClient, _Start] = {}
        """Clients that a thread is connecting, even if they were taken out of `_starting` meanwhile."""
        self.departing: set[MCPClient] = set()
        """Clients that were removed, and whose servers may not have ended. `disconnect_all` waits for them."""
        self._changes = 0
        self._routed_changes = 0
        self._offers: dict[str, tuple[MCPTool, ...]] = {}
        self._failed: dict[str, ServerStatus] = {}
        self._known: dict[str, None] = {}
        """All servers that were not dropped, in listing order. Each owns the tool names that begin with its name."""

    # Starting.

    def __contains__(self, name: str) -> bool:
        """Whether a connected or starting server has the name. The name of a server that has failed is free."""
        starting = self._starting.get(name)
        # Its failure is public before its thread gets to `_join`.
        return name in self.connected or (starting is not None and starting.state not in _FAILED)

    def is_starting(self, name: str) -> bool:
        with self._lock:
            return name in self._starting or name in self._waiting

    def reserve(self, name: str, client: MCPClient) -> None:
        """Reserve a name, and stop a server that has failed under it, and may be tried again. Raises NameTaken."""
        with self._lock:
            if name in self:
                raise NameTaken(f"server {name!r} already exists; remove it first, or choose another name")
            failed = self._waiting.get(name) or self._starting.get(name)
            if failed is not None:
                self._replaced[client] = failed
                self._waiting.pop(name, None)
                if failed in self._connecting:
                    self._connecting[failed].unwanted = True
                failed._engine.request_disconnect()
            self._starting[name] = client
            self._known[name] = None

    def expect(self, names: Iterable[str]) -> None:
        """Record the configured servers in their order, whether or not they will be connected."""
        with self._lock:
            self._known = {**dict.fromkeys(names), **self._known}
            self._changes += 1
        self._rebuild_routes()

    def in_order(self, names: Collection[str]) -> list[str]:
        """Sort the server `names` by the configuration; names that it does not have come last."""
        known = self._known.copy()
        return [*(name for name in known if name in names), *(name for name in names if name not in known)]

    def connect(self, name: str, client: MCPClient, *, keep_trying: bool = False) -> bool:
        """Connect a client whose name is reserved. True if it has joined; with `keep_trying` it may join later."""
        start = _Start()
        try:
            with self._lock:
                self._connecting[client] = start
                # False if the client was dropped before its thread ran.
                wanted = self._starting.get(name) is client
                replaced = self._replaced.pop(client, None)
            if replaced is not None:
                replaced.disconnect()
            if not wanted:
                return False
            connected = client.connect(keep_trying=True) if keep_trying else client.connect()
            return self._join(name, client, start, connected, keep_trying=keep_trying)
        except BaseException:
            self._abandon(name, client)
            raise
        finally:
            self._connecting.pop(client, None)
            start.over.open()
            self._readiness.changed()

    def _join(self, name: str, client: MCPClient, start: _Start, connected: bool, *, keep_trying: bool) -> bool:
        """Record the outcome of a start. True if the client has joined the registry."""
        with self._lock:
            if self._starting.get(name) is client:
                self._starting.pop(name, None)
            if not start.unwanted:
                # The server may have been ready for a moment, or at the second attempt, before this thread ran.
                connected = connected or start.came_up
                self._failed.pop(name, None)
                if connected:
                    self.connected[name] = client
                elif keep_trying and client.keeps_trying:
                    self._waiting[name] = client
                else:
                    self._failed[name] = client.status
            # The client is in its place now, so a signal handler that takes servers away finds it there. A handler that
            # ran earlier has set `start.unwanted`, which is read after that.
            unwanted = start.unwanted
            if unwanted:
                self._take_out(name, client)
            self._changes += 1
        if unwanted:
            client.disconnect()
            return False
        self._rebuild_routes()
        # None if the server was taken away in the meantime.
        tools = self._offers.get(name)
        if connected and tools:
            self._on_joined(name, tools)
        return connected

    def came_up(self, name: str, client: MCPClient) -> tuple[MCPTool, ...]:
        """Called on the supervisor's thread whenever a server is ready. Returns its tools if it joins now."""
        with self._lock:
            if client in self._connecting:
                # The connecting thread adds the client to `connected`.
                self._connecting[client].came_up = True
            if self._waiting.get(name) is not client:
                return ()
            self.connected[name] = client
            self._waiting.pop(name, None)
            self._changes += 1
        self._rebuild_routes()
        return self._offers.get(name, ())

    def _take_out(self, name: str, client: MCPClient) -> bool:
        """Remove a client from all states; the caller holds the lock. False if it had none."""
        found = False
        for clients in (self.connected, self._starting, self._waiting):
            if clients.get(name) is client:
                found = True
                clients.pop(name, None)
        return found

    def _abandon(self, name: str, client: MCPClient) -> None:
        """Clean up after an exception that a signal handler may have raised at any line of `connect`."""
        self.departing.add(client)
        with self._lock:
            joined = self.connected.get(name) is client
            if self._take_out(name, client) and not joined:
                self._failed[name] = client.status
            elif name not in self:
                self._offers.pop(name, None)
            self._changes += 1
        self._rebuild_routes()
        client._engine.request_disconnect()

    def refused(self, name: str, reason: str) -> None:
        with self._lock:
            if name not in self:
                self._failed[name] = ServerStatus(name=name, state=ServerState.FAILED, last_error=reason)

    # Tools and other offers of the servers.

    def tools_listed(self, name: str, client: MCPClient, tools: tuple[MCPTool, ...]) -> None:
        """Called on the supervisor's thread whenever a client's tools may have changed."""
        with self._lock:
            if client is not self.client_of(name):
                # The client was taken away; another one may have its name now.
                return
            self._offers[name] = tools
            if name not in self.connected:
                # `_join` or `came_up` builds the routes later.
                return
            self._changes += 1
        self._rebuild_routes()

    def _rebuild_routes(self) -> None:
        with self._lock:
            # Repeat if a signal handler changed something meanwhile.
            while (changes := self._changes) != self._routed_changes:
                connected, offers = self.connected.copy(), self._offers.copy()
                servers = self.in_order(connected)
                tools = {(name, tool.name): tool for name in servers for tool in offers.get(name, ())}
                self.routes = {
                    unique: Route(
                        connected[server],
                        dataclasses.replace(tools[server, tool], server=server, namespaced_name=unique),
                    )
                    for unique, (server, tool) in assign(tools, self._known.copy()).items()
                }
                self._routed_changes = changes

    def is_about_to_start(self, tool_name: str) -> bool:
        """Whether the server of a tool, by its namespaced name, is reserved but not yet starting."""
        server = self.owner_of(tool_name)
        client = None if server is None else self._starting.get(server)
        return client is not None and client.state is ServerState.CREATED

    def route_to_absent(self, tool_name: str) -> Route | None:
        """A route to a server that has not listed the tool, and may have it; None if there is no such server.

        The client of the route refuses the call with the reason, or makes the call wait for a start under way.
        """
        server = self.owner_of(tool_name)
        client = None if server is None else self.client_of(server)
        if server is None or client is None or client.state is ServerState.CREATED:
            return None
        if self.connected.get(server) is client and (client.is_connected() or client._engine.tool_calls.catalog.listed):
            # The thread that makes the server join may not have built the routes yet.
            self._rebuild_routes()
            profile = client._engine.session.profile
            # A gateway does not list the tools of a server that has never been ready, and answers for that server.
            if tool_name in self.routes or profile is None or not profile.is_gateway:
                return self.routes.get(tool_name)
        own_name = tool_name.removeprefix(f"mcp_{server}_")
        return Route(client, MCPTool(own_name, "", {}, server=server, namespaced_name=tool_name))

    def owner_of(self, tool_name: str) -> str | None:
        """The server that a namespaced name belongs to, whether or not it has such a tool."""
        return owner_of(tool_name, self._known.copy())

    def refusal_of(self, name: str) -> ToolDenied | None:
        """Why a connected server's tool, by its namespaced name, is denied or withheld; None if it is not."""
        hidden = {
            (server, tool): client
            for server, client in self.connected.copy().items()
            for tool in (*client.denied_tools, *client.blocked_tools)
        }
        pair = assign(hidden, self._known.copy()).get(name)
        return None if pair is None else hidden[pair]._engine.refusal_of(pair[1])

    def unknown_tool(self, name: str) -> UnknownTool | ServerUnavailable:
        self._rebuild_routes()
        routes = self.routes
        if name in routes:
            return ServerUnavailable.of(routes[name].client.name, "it was not ready, and has just become so")
        import difflib

        # The most frequent mistake is a tool's own name without the server's.
        own = [route for route in routes if route.endswith(f"_{name}")][:3]
        close = own or difflib.get_close_matches(name, routes, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "list_tools() gives the names"
        return UnknownTool(f"no connected server offers a tool named {name!r}; {hint}")

    def status(self) -> list[ServerStatus]:
        with self._lock:
            clients, failed = self.clients(), self._failed.copy()
        statuses = {**failed, **{name: client.status for name, client in clients.items()}}
        return [statuses[name] for name in self.in_order(statuses)]

    def clients(self) -> dict[str, MCPClient]:
        with self._lock:
            return {**self._waiting, **self._starting, **self.connected}

    def failed_names(self) -> set[str]:
        return set(self._failed.copy())

    # Stopping.

    def client_of(self, name: str) -> MCPClient | None:
        with self._lock:
            return self.connected.get(name) or self._starting.get(name) or self._waiting.get(name)

    def drop(self, name: str, client: MCPClient) -> None:
        """Remove a server, unless another client has its name by now. The caller disconnects the client."""
        with self._lock:
            if client in self._connecting:
                self._connecting[client].unwanted = True
            if not self._take_out(name, client):
                return
            self._offers.pop(name, None)
            self._known.pop(name, None)
            self._changes += 1
        self._rebuild_routes()

    def forget_failure(self, name: str) -> None:
        with self._lock:
            self._failed.pop(name, None)
            if self.client_of(name) is None:
                self._known.pop(name, None)
                self._changes += 1
        self._rebuild_routes()

    def take_all(self) -> dict[str, MCPClient]:
        """Remove all servers, starting ones included. The caller disconnects them."""
        with self._lock:
            for start in list(self._connecting.values()):
                start.unwanted = True
            clients = self.clients()
            self._changes += 1
            self.connected, self._starting, self._waiting = {}, {}, {}
            self._failed, self._offers, self.routes = {}, {}, {}
        return clients

    def wait_for_starts(self) -> None:
        """Return when no thread is connecting a removed client."""
        # A signal handler or a finalizer may run inside a start of this thread. That start continues only afterwards,
        # and then finds that its client was removed; so do not wait for it.
        this_thread = threading.get_ident()
        for client, start in self._connecting.copy().items():
            if start.process != os.getpid():
                continue
            while start.unwanted and start.thread != this_thread and not start.over.wait(_ASK_AGAIN_SECONDS):
                # The client may have connected after the first request to disconnect.
                client._engine.request_disconnect()
