"""Notifications to clients: `ChangeNotifier` reports an agent's changes; `wants_log` filters log messages.

Up to revision 2025-11-25 a client has a session, in which it subscribes to single resources and sets a log level. Since
2026-07-28, a client keeps a ``subscriptions/listen`` request open, which the SDK serves from a bus, and each request
names its own log level.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gaia.agents.base.mcp_context import ServableAgent
from gaia.mcp.client.features import LOG_LEVELS

Context = ServerRequestContext[Any, Any]

LISTS: dict[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}

LOG_LEVEL_KEY = "gaia.logging_level"
"""The key of a session's log level in the SDK's state."""


class ChangeNotifier:
    """Notifies clients of an agent's changes. For the event loop."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._subscribed: dict[Connection, set[str]] = {}
        """By session: the resources to which it has subscribed."""
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def following(self, agent: ServableAgent) -> Any:
        loop = asyncio.get_running_loop()

        def changed(what: str, uri: str | None) -> None:
            # Any thread of the agent may call this. A closed loop has no clients.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._publish, what, uri)

        remove = agent.add_mcp_listener(changed)
        try:
            yield
        finally:
            remove()
            self.listen.close()
            for task in tuple(self._tasks):
                task.cancel()

    async def opened(self, ctx: Context, _params: types.NotificationParams | None) -> None:
        self._session(ctx)

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self._session(ctx).add(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._session(ctx).discard(str(params.uri))
        return types.EmptyResult()

    def _session(self, ctx: Context) -> set[str]:
        connection = _connection(ctx)
        if connection not in self._subscribed:
            self._subscribed[connection] = set()
            connection.exit_stack.callback(self._subscribed.pop, connection, None)
        return self._subscribed[connection]

    def _publish(self, what: str, uri: str | None) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(what, uri))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, what: str, uri: str | None) -> None:
        if what == "resource":
            await self._bus.publish(ResourceUpdated(uri=str(uri)))
            sessions = [connection for connection, uris in self._subscribed.items() if uri in uris]
            method, params = "notifications/resources/updated", {"uri": str(uri)}
        else:
            await self._bus.publish(LISTS[what]())
            sessions = list(self._subscribed)
            method, params = f"notifications/{what}/list_changed", {}
        for connection in sessions:
            # The SDK closes a session whose client has gone; the other sessions must still be notified.
            with contextlib.suppress(Exception):
                await connection.notify(method, params or None)


def set_log_level(ctx: Context, level: str) -> None:
    _connection(ctx).state[LOG_LEVEL_KEY] = level


def wants_log(ctx: Context, level: str) -> bool:
    """Whether the client of this request wants a log message of `level`. Raises ValueError for an unknown level."""
    if level not in LOG_LEVELS:
        raise ValueError(f"There is no log level {level!r}; levels are {', '.join(LOG_LEVELS)}")
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        wanted = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        return wanted in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(str(wanted))
    # A client that never set a level receives every message.
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(_connection(ctx).state.get(LOG_LEVEL_KEY, LOG_LEVELS[0]))


def _connection(ctx: Context) -> Connection:
    """The object that exists as long as a session. The SDK has no public name for it."""
    connection: Connection = ctx.session._connection
    return connection
