"""`View`: what clients see at one path: the tools and other things of some servers, under one set of names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from gaia.mcp.client.tool import MCPTool
from gaia.mcp.gateway.known_servers import KnownServer, KnownServers

__all__ = ["Listing", "View"]

_PREFIX = "mcp_"
"""What the manager's names of tools begin with; those of the gateway do not."""


class Listing(NamedTuple):
    """The tools of a view, as they are listed and as they are called."""

    version: int
    result: bytes
    """For clients of the handshake era."""
    stateless_result: bytes
    routes: dict[str, tuple[KnownServer, str]]
    """By the name at this path: the server, and its own name for the tool."""


class View:
    """Belongs to the gateway's event loop."""

    def __init__(self, servers: KnownServers, server: str | None, principal: object) -> None:
        """All servers, or one `server` under its own names."""
        self._servers = servers
        self._server = server
        self.principal = principal
        self._tools: Listing | None = None

    def servers(self) -> Sequence[KnownServer]:
        return self._servers.of(self._servers.names() if self._server is None else [self._server])

    def when_settled(self, act: Callable[[], None]) -> None:
        """Call `act` once the first starts of all servers have succeeded or failed."""

        def condition() -> bool:
            if all(server.has_settled for server in self.servers()):
                act()
                return True
            return False

        self._servers.when(condition)

    # Tools.

    def tools(self) -> Listing:
        listing = self._tools
        if listing is None or listing.version != self._servers.version:
            listing = self._tools = self._list_tools()
        return listing

    def _list_tools(self) -> Listing:
        version = self._servers.version
        definitions: list[dict[str, Any]] = []
        routes: dict[str, tuple[KnownServer, str]] = {}
        for name, server, tool in self._named_tools():
            definitions.append({"inputSchema": {"type": "object"}, **tool.definition, "name": name})
            routes[name] = (server, tool.name)
        result = orjson.dumps({"tools": definitions})
        stateless = result[:-1] + b',"resultType":"complete","ttlMs":0,"cacheScope":"private"}'
        return Listing(version, result, stateless, routes)

    def _named_tools(self) -> list[tuple[str, KnownServer, MCPTool]]:
        if self._server is not None:
            server = self._servers.get(self._server)
            return (
                [] if server is None else [(tool.name, server, tool) for tool in server.client.tool_calls.catalog.tools]
            )
        found = []
        for name, route in self._servers.manager.routes.items():
            server = self._servers.get(route.client.name)
            if server is not None:
                found.append((name.removeprefix(_PREFIX), server, route.tool))
        return found

    def find_tool(self, name: str) -> tuple[KnownServer, str] | None:
        """The server of a tool, and the server's own name for it."""
        return self.tools().routes.get(name)
