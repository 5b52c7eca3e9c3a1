"""`Changes`: an agent says that something changed, and every client that wants to know is told.

Up to revision 2025-11-25 a client has a session, and subscribes to single resources in it; since 2026-07-28 it keeps a
``subscriptions/listen`` request open, which the SDK serves from a bus.
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

from gaia.mcp.server.offering import Offering

__all__ = ["Changes"]

LISTS: dict[str, tuple[Callable[[], ServerEvent], str]] = {
    "tools": (ToolsListChanged, "notifications/tools/list_changed"),
    "prompts": (PromptsListChanged, "notifications/prompts/list_changed"),
    "resources": (ResourcesListChanged, "notifications/resources/list_changed"),
}


class Changes:
    """Who is told what. Everything but `_changed` runs on the event loop."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._subscribed: dict[Connection, set[str]] = {}
        """The sessions, and the resources that each has subscribed to."""
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def following(self, offering: Offering) -> Any:
        """Tell clients about the changes of `offering` as long as the context lasts."""
        loop = asyncio.get_running_loop()

        def changed(what: str, uri: str | None) -> None:
            # From whatever thread the agent is in; a loop that has ended has nobody to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._publish, what, uri)

        remove = offering.add_mcp_listener(changed)
        try:
            yield
        finally:
            remove()
            self.listen.close()
            for task in tuple(self._tasks):
                task.cancel()

    async def opened(self, ctx: ServerRequestContext[Any, Any], _params: types.NotificationParams | None) -> None:
        """``notifications/initialized``: a session has begun."""
        self._session(ctx)

    async def subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        self._session(ctx).add(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._session(ctx).discard(str(params.uri))
        return types.EmptyResult()

    def _session(self, ctx: ServerRequestContext[Any, Any]) -> set[str]:
        # The SDK hands out the connection by no public name; it is what lasts as long as a session.
        connection = ctx.session._connection
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
            event, method = LISTS[what]
            await self._bus.publish(event())
            sessions, params = list(self._subscribed), {}
        for connection in sessions:
            # A session whose client is gone is closed elsewhere; the others are told all the same.
            with contextlib.suppress(Exception):
                await connection.notify(method, params or None)
