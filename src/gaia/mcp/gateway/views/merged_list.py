"""`MergedList`: one list of several servers' items, encoded once for all clients, with routes to the servers."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson

from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views.cached_list import CachedList
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.protocol.messages import INVALID_PARAMS
from gaia.mcp.protocol.request_headers import InvalidMark, Path, marks

_PAGE = 1_000
"""Items on one page."""


class MergedList:
    """Belongs to the gateway's event loop."""

    def __init__(self, member: str, version: int) -> None:
        """`member` is the member of the result with the items. `version` is that of `UpstreamServers`."""
        self.version = version
        self.routes: dict[str, tuple[UpstreamServer, str]] = {}
        """By the name in this list: the server, and its own name."""
        self.marks: dict[str, dict[Path, str]] = {}
        """Arguments of tools that clients repeat in headers, by the tool's name in this list."""
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
        """Include a part's time to live and scope in those of this list."""
        if part.is_offered:
            self._ttls.append(part.ttl_ms)
            self._is_public = self._is_public and part.is_public

    def page(self, cursor: str | None, *, stateless: bool) -> bytes:
        """One page as JSON. Raises `RequestRefused` for a cursor of another list."""
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
