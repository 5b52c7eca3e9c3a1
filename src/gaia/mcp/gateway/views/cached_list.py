"""`CachedList`: resources, templates or prompts of one server, as last listed. It is kept during a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gaia.mcp.aio.calls import run
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import Exchange
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

Item = dict[str, Any]

_MAX_TTL_MS = 24 * 3600 * 1000


@dataclass(eq=False)
class CachedList:
    """Belongs to the gateway's event loop."""

    client: MCPClient
    capability: str
    key: str
    """The member that names an item, such as ``uri``."""
    listing: Callable[[], Exchange[list[Item]]]
    on_listed: Callable[[bool], None]
    """``on_listed(was_known)`` is called after each change of the list."""
    items: tuple[Item, ...] = ()
    is_known: bool = False
    ttl_ms: int = 0
    is_public: bool = False
    _fresh_until: float = 0.0
    _is_stale: bool = True
    _is_announced: bool = False
    _task: asyncio.Task[None] | None = None
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_offered(self) -> bool:
        return self.capability in self.client.capabilities

    def outdated(self, *, is_announced: bool) -> None:
        """The server was started again, or has announced a change. Fetches the list again if it was used before."""
        self._is_stale = True
        self._is_announced = self._is_announced or is_announced
        if self.is_known or self._task is not None:
            self._fetch()
        elif is_announced:
            self._is_announced = False
            self.on_listed(True)

    def when_fetched(self, act: Callable[[], None]) -> None:
        """Call `act` once the list is fetched: now if the list is current, or if the server cannot answer now."""
        if self._is_current() or not self.client.is_connected() or not self.is_offered:
            act()
            return
        self._waiting.append(act)
        self._is_stale = True
        self._fetch()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _is_current(self) -> bool:
        if not self.is_known or self._is_stale:
            return False
        declared = self.client.capabilities.get(self.capability)
        if isinstance(declared, Mapping) and declared.get("listChanged"):
            return True
        return asyncio.get_running_loop().time() < self._fresh_until

    def _fetch(self) -> None:
        if self._task is None and self.client.is_connected() and self.is_offered:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_stale or not self.is_known:
            self._is_stale = False
            pages: list[Mapping[str, Any]] = []
            try:
                items = await run(self.client._engine.requests, _noting(self.listing(), pages.append))
            except MCPError as error:
                logger.warning("gateway_list_failed", server=self.client.name, what=self.key, error=error.message)
                self._is_stale = True
                break
            self._take(items, pages)
        self._task = None
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def _take(self, items: list[Any], pages: list[Mapping[str, Any]]) -> None:
        found = tuple(item for item in items if isinstance(item, dict) and isinstance(item.get(self.key), str))
        self.ttl_ms = min((_milliseconds(page.get("ttlMs")) for page in pages), default=0)
        self.is_public = all(page.get("cacheScope") == "public" for page in pages)
        self._fresh_until = asyncio.get_running_loop().time() + self.ttl_ms / 1000
        is_other, was_known = found != self.items or self._is_announced, self.is_known
        self.items, self.is_known, self._is_announced = found, True, False
        if is_other or not was_known:
            self.on_listed(was_known)


def _milliseconds(value: object) -> int:
    """A number of milliseconds; 0 if the value is missing, negative or not a number ("Caching")."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return int(min(value, _MAX_TTL_MS))


def _noting(exchange: Exchange[list[Item]], note: Callable[[Mapping[str, Any]], None]) -> Exchange[list[Item]]:
    try:
        step = next(exchange)
        while True:
            try:
                result = yield step
            except MCPError as error:
                step = exchange.throw(error)
            else:
                note(result)
                step = exchange.send(result)
    except StopIteration as stop:
        listed: list[Item] = stop.value
        return listed
