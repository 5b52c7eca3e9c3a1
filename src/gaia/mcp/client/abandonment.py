"""A client that was dropped while it was connected: what its supervisor has of it, and how its server is stopped.

The supervisor's thread runs as long as the server does. If it held the client, no client would ever be dropped.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Protocol

from gaia.mcp.client.client_options import SharedServices
from gaia.mcp.client.session import Session
from gaia.mcp.errors import CallCancelled, MCPError
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.context import KnownServer, Listing, SupervisionContext
from gaia.mcp.supervision.events import Event
from gaia.mcp.supervision.subscriptions import Subscriptions


class HookedClient(Protocol):
    """The part of a client that its supervisor calls."""

    subscriptions: Subscriptions

    def listing_begins(self) -> Listing: ...

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None: ...

    def tools_remembered(self, definitions: list[Any]) -> None: ...

    def refusal_of(self, tool_name: str, /) -> MCPError | None: ...

    def safe_to_repeat(self, tool_name: str, /) -> bool: ...

    def happened(self, event: Event) -> None: ...

    def adopted(self, context: SupervisionContext) -> None: ...

    def last_known(self) -> KnownServer | None: ...


class WeakHooks:
    """The `SupervisionHooks` of a client, without a reference that keeps it."""

    def __init__(self, client: HookedClient) -> None:
        self.subscriptions = client.subscriptions
        self._client = weakref.ref(client)

    def listing_begins(self) -> Listing:
        client = self._client()
        return Listing(0, 0.0) if client is None else client.listing_begins()

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        if (client := self._client()) is not None:
            client.tools_listed(definitions, listing)

    def tools_remembered(self, definitions: list[Any]) -> None:
        if (client := self._client()) is not None:
            client.tools_remembered(definitions)

    def refusal_of(self, tool: str) -> MCPError | None:
        client = self._client()
        return CallCancelled("its client was dropped") if client is None else client.refusal_of(tool)

    def safe_to_repeat(self, tool: str) -> bool:
        client = self._client()
        return client is not None and client.safe_to_repeat(tool)

    def happened(self, event: Event) -> None:
        if (client := self._client()) is not None:
            client.happened(event)

    def adopted(self, context: SupervisionContext) -> None:
        if (client := self._client()) is not None:
            client.adopted(context)

    def last_known(self) -> KnownServer | None:
        client = self._client()
        return None if client is None else client.last_known()


def stop_when_dropped(client: object, name: str, session: Session, services: SharedServices) -> None:
    """Have the server stopped, with a ResourceWarning, if `client` is dropped without `disconnect`.

    At the end of the interpreter all servers are stopped anyway, without a warning.
    """
    # Not the services themselves, which lead to the manager and to the client.
    pools = (services.callbacks, services.server_request_threads)
    weakref.finalize(client, _dropped, name, session, pools).atexit = False


def _dropped(name: str, session: Session, pools: tuple[CallbackPool, ...]) -> None:
    # The garbage collector calls this in any thread, which may hold any lock: so nothing here takes one.
    def close_pools() -> None:
        # If other clients of the manager use them, they start threads again.
        for pool in pools:
            pool.close()

    if session.abandon(close_pools):
        warnings.warn(
            f"the MCP client {name!r} was dropped while it was connected; its server is stopped. "
            "Call disconnect(), or use the client or its manager in a 'with' statement",
            ResourceWarning,
            stacklevel=2,
        )
