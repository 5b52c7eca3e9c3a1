"""`View`: the tools, prompts and resources that clients with one profile see at one path."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views.cached_list import CachedList
from gaia.mcp.gateway.views.notifier import Notifier
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer, UpstreamServers
from gaia.mcp.protocol.messages import INVALID_PARAMS
from gaia.mcp.protocol.request_headers import InvalidMark, Path, marks
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.tools.naming import PREFIX, assign
from gaia.mcp.tools.tool import MCPTool
from gaia.runtime.untrusted_text import consists_of

_OPENING_SECONDS = 3.0
"""How long opening a session waits for the first start of servers.

Clients wait 10 seconds for opening and the first list: the official SDK for the answer to ``server/discover`` alone,
other clients for both together.
"""
_PART_OF_WAIT = 0.9
"""The part of a client's time that the gateway waits for the server; the rest is for the answer's way."""
_START_SECONDS = 5.0
"""How long a list waits for the same servers. It then leaves out slower servers."""
_LIST_SECONDS = 5.0
"""How long lists wait that no server has answered yet."""
_NEW_LIST_SECONDS = 0.5
"""How long known lists wait that may have changed."""
_PAGE = 1_000


class MergedList:
    """One list of several servers' items, encoded once for all clients, with routes to the servers."""

    def __init__(self, member: str, version: int) -> None:
        """`member` is the result's member with the items, `version` the version of `UpstreamServers`."""
        self.version = version
        self.routes: dict[str, tuple[UpstreamServer, str]] = {}
        """By the name in this list: the server, and the server's own name."""
        self.marks: dict[str, dict[Path, str]] = {}
        """By the tool's name in this list: arguments that clients repeat in headers."""
        self._member = member
        self._items: list[dict[str, Any]] = []
        self._pages: dict[tuple[int, bool], bytes] = {}
        self._ttls: list[int] = []
        self._is_public = True

    def add(self, name: str, server: UpstreamServer, own_name: str, item: dict[str, Any]) -> None:
        self.routes[name] = (server, own_name)
        self._items.append(item)
        if "inputSchema" in item:
            # Clients must not call a tool with invalid marks.
            with contextlib.suppress(InvalidMark):
                if found := marks(item["inputSchema"]):
                    self.marks[name] = found

    def note(self, part: CachedList) -> None:
        if part.is_offered:
            self._ttls.append(part.ttl_ms)
            self._is_public = self._is_public and part.is_public

    def page(self, cursor: str | None, *, stateless: bool) -> bytes:
        """One page as JSON. Raises `RequestRefused` for another list's cursor."""
        start = 0
        if cursor is not None:
            start = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else -1
            if not 0 < start < len(self._items) or start % _PAGE:
                raise RequestRefused(INVALID_PARAMS, "the cursor is none of this list's: list from the beginning")
        page = self._pages.get((start, stateless))
        if page is None:
            page = self._pages[start, stateless] = self._encode(start, stateless=stateless)
        return page

    def _encode(self, start: int, *, stateless: bool) -> bytes:
        end = start + _PAGE
        result: dict[str, Any] = {self._member: self._items[start:end]}
        if end < len(self._items):
            result["nextCursor"] = str(end)
        if stateless:
            result["resultType"] = "complete"
            result["ttlMs"] = min(self._ttls, default=0)
            result["cacheScope"] = "public" if self._is_public and self._ttls else "private"
        return orjson.dumps(result)


class View:
    """Belongs to the gateway's event loop."""

    def __init__(self, servers: UpstreamServers, changes: Notifier, server: str | None, profile: Profile) -> None:
        """Shows all servers, or one `server` under its own names, as far as `profile` allows."""
        self.changes = changes
        self.checks, self.rounds, self.handles = servers.checks, servers.rounds, servers.handles
        self.server = server
        self.profile = profile
        self._servers = servers
        self._lists: dict[str, MergedList] = {}

    def servers(self) -> Sequence[UpstreamServer]:
        names = self._servers.names() if self.server is None else [self.server]
        return self._servers.of(name for name in names if self.profile.allows_server(name))

    def sees(self, server: str) -> bool:
        return (self.server is None or self.server == server) and self.profile.allows_server(server)

    def sees_resource(self, server: str, uri: str) -> bool:
        return self.sees(server) and self.profile.allows_resource(server, uri)

    def when_opening(self, act: Callable[[], None], deadline: float | None) -> None:
        """Like `when_settled`, but waits for less time: a list waits again for servers that are not settled by then.

        At the path of one server, the answer is about that server, so it waits as long as the client does: until
        shortly before `deadline`, a reading of the monotonic clock.
        """
        if self.server is None or deadline is None:
            self._servers.when(lambda: all(map(self._servers.settled, self.servers())), act, _OPENING_SECONDS)
        else:
            seconds = _PART_OF_WAIT * max(0.0, deadline - time.monotonic())
            self._servers.when(lambda: not any(map(self._servers.is_starting, self.servers())), act, seconds)

    def when_settled(self, act: Callable[[], None]) -> None:
        """Call `act` when the first start of each server has succeeded or failed, or after `_START_SECONDS`.

        A server that has had this time is not waited for again, because it may never answer.
        """
        starting = [server for server in self.servers() if not self._servers.settled(server)]

        def end() -> None:
            for server in starting:
                server.has_settled = True
            act()

        self._servers.when(lambda: all(map(self._servers.settled, self.servers())), end, _START_SECONDS)

    def _merged(self, member: str, merge: Callable[[MergedList], None]) -> MergedList:
        merged = self._lists.get(member)
        if merged is None or merged.version != self._servers.version:
            merged = self._lists[member] = MergedList(member, self._servers.version)
            merge(merged)
        return merged

    # Tools.

    def tools(self) -> MergedList:
        return self._merged("tools", self._merge_tools)

    def _merge_tools(self, merged: MergedList) -> None:
        for name, server, tool in self._named_tools():
            if self.profile.allows_tool(server.name, tool.name, tool.annotations):
                definition = {"inputSchema": {"type": "object"}, **tool.definition, "name": name}
                merged.add(name, server, tool.name, definition)

    def _named_tools(self) -> list[tuple[str, UpstreamServer, MCPTool]]:
        if self.server is not None:
            server = self._servers.get(self.server)
            tools = () if server is None else server.client._engine.tool_calls.catalog.tools
            return [(tool.name, server, tool) for tool in tools if server is not None]
        found = []
        for name, route in self._servers.manager._engine.registry.routes.items():
            server = self._servers.get(route.client.name)
            if server is not None:
                found.append((name.removeprefix(PREFIX), server, route.tool))
        return found

    def find_unlisted_tool(self, name: str) -> tuple[UpstreamServer, str] | None:
        """Find a tool of a server that has not joined the routes. Its call waits, or fails with the reason."""
        for server in self.servers():
            prefix = "" if self.server is not None else f"{server.name}_"
            own = name.removeprefix(prefix)
            if (
                name.startswith(prefix)
                and self._may_come(server, own)
                # Before the start begins, the server's client would refuse the call, so the call waits for the start.
                and server.client.state is not ServerState.CREATED
                and self.profile.allows_tool(server.name, own, None)
            ):
                return server, own
        return None

    def _may_come(self, server: UpstreamServer, tool: str) -> bool:
        """Whether the server may soon have a tool that the manager does not list."""
        catalog = server.client._engine.tool_calls.catalog
        profile = server.client._engine.session.profile
        if not catalog.listed or (profile is not None and profile.is_gateway):
            # A gateway does not list the tools of a server that has never been ready, and answers for that server.
            return True
        # The server has listed its tools and has not joined the others yet, or ended before it could.
        has_joined = any(
            route.client is server.client for route in self._servers.manager._engine.registry.routes.values()
        )
        return not has_joined and tool in catalog

    # Prompts.

    def when_prompts_known(self, act: Callable[[], None]) -> None:
        self._when_fetched([server.prompts for server in self.servers()], act)

    def prompts(self) -> MergedList:
        return self._merged("prompts", self._merge_prompts)

    def _merge_prompts(self, merged: MergedList) -> None:
        names: dict[tuple[str, str], str] = {}
        if self.server is None:
            # Names are assigned over all prompts, so that they do not depend on a client's rights.
            everything = self._servers.of(self._servers.names())
            pairs = [(server.name, item["name"]) for server in everything for item in server.prompts.items]
            assigned = assign(pairs, [server.name for server in everything])
            names = {pair: name.removeprefix(PREFIX) for name, pair in assigned.items()}
        for server in self.servers():
            merged.note(server.prompts)
            for item in server.prompts.items:
                own: str = item["name"]
                if self.profile.allows_prompt(server.name, own):
                    name = names.get((server.name, own), own)
                    merged.add(name, server, own, {**item, "name": name})

    # Resources.

    def when_resources_known(self, act: Callable[[], None]) -> None:
        servers = self.servers()
        self._when_fetched([one for server in servers for one in (server.resources, server.templates)], act)

    def resources(self) -> MergedList:
        """The visible resources by URI. If several servers have the same URI, the first server counts."""
        allows = self.profile.allows_resource
        return self._merged("resources", lambda merged: self._merge_uris(merged, "resources", "uri", allows))

    def templates(self) -> MergedList:
        allows = self.profile.allows_template
        return self._merged(
            "resourceTemplates", lambda merged: self._merge_uris(merged, "templates", "uriTemplate", allows)
        )

    def _merge_uris(self, merged: MergedList, part: str, key: str, allows: Callable[[str, str], bool]) -> None:
        for server in self.servers():
            listed: CachedList = getattr(server, part)
            merged.note(listed)
            for item in listed.items:
                uri = item[key]
                if uri not in merged.routes and allows(server.name, uri):
                    merged.add(uri, server, uri, item)

    def servers_of_resource(self, uri: str) -> list[UpstreamServer]:
        """The servers that may have a resource, the most likely server first."""
        listed, templates, others = [], [], []
        for server in self.servers():
            if not server.resources.is_offered or not self.profile.allows_resource(server.name, uri):
                continue
            if any(item["uri"] == uri for item in server.resources.items):
                listed.append(server)
            elif any(
                item["uriTemplate"] == uri or matches(item["uriTemplate"], uri) for item in server.templates.items
            ):
                templates.append(server)
            else:
                others.append(server)
        return listed[:1] or [*templates, *others]

    def _when_fetched(self, lists: Sequence[CachedList], act: Callable[[], None]) -> None:
        def settled() -> None:
            missing = len(lists)

            def fetched() -> None:
                nonlocal missing
                missing -= 1
                if missing == 0:
                    self._servers.look()

            for one in lists:
                one.when_fetched(fetched)
            seconds = _NEW_LIST_SECONDS if all(one.is_known for one in lists if one.is_offered) else _LIST_SECONDS
            self._servers.when(lambda: missing <= 0, act, seconds)

        self.when_settled(settled)


_EXPRESSION = re.compile(r"\{[^{}]*\}")
_OPERATORS = "+#./;?&"
_RESERVED = ":/?#[]@!$&'()*+,;="


def matches(template: str, uri: str) -> bool:
    """Whether a URI has a template's fixed parts in order. Takes linear time, because servers write the templates."""
    parts = _EXPRESSION.split(template)
    return template == uri or (len(parts) > 1 and consists_of(uri, parts))


def expanded(template: str, values: Mapping[str, str]) -> str:
    """The URI of a template with these values. Variables without a value are left out."""

    def expand(expression: re.Match[str]) -> str:
        text = expression[0][1:-1]
        operator = text[:1] if text[:1] in _OPERATORS else ""
        names = [name.partition(":")[0].rstrip("*") for name in text[len(operator) :].split(",")]
        found = [(name, quote(values[name], safe=_RESERVED)) for name in names if values.get(name)]
        if operator and operator in ";?&":
            return "".join(f"{operator}{name}={value}" for name, value in found)
        separator = operator if operator and operator in "#./" else ""
        return "".join(separator + value for _, value in found)

    return _EXPRESSION.sub(expand, template)
