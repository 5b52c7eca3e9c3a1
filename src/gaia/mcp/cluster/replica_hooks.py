"""What one replica tells, as a part of what is told of its server."""

from __future__ import annotations

from typing import Any, Protocol

from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.context import KnownServer, Listing, SupervisionContext, SupervisionHooks
from gaia.mcp.supervision.events import Event, StateChanged
from gaia.mcp.supervision.subscriptions import Subscriptions


class ReplicaWatcher(Protocol):
    """What is told of replicas, by their numbers; on the loop's thread."""

    def changed(self, number: int, event: StateChanged) -> None:
        """A replica has another state than before."""

    def listed(self, number: int, definitions: list[Any]) -> None:
        """A replica has listed its tools."""

    def happened(self, event: Event) -> None:
        """Something else has happened to a replica."""


class ReplicaHooks:
    """The `SupervisionHooks` of one replica. For the thread of the loop; `hooks` are those of its server."""

    def __init__(self, server: ReplicaWatcher, number: int, hooks: SupervisionHooks) -> None:
        self._server = server
        self._number = number
        self._hooks = hooks

    def listing_begins(self) -> Listing:
        """That of the server begins when this one has ended, because several may be under way."""
        return Listing(0, 0.0)

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:  # noqa: ARG002
        self._server.listed(self._number, definitions or [])

    def tools_remembered(self, definitions: list[Any]) -> None:
        self._hooks.tools_remembered(definitions)

    def safe_to_repeat(self, tool: str) -> bool:
        return self._hooks.safe_to_repeat(tool)

    @property
    def subscriptions(self) -> Subscriptions:
        return self._hooks.subscriptions

    def refusal_of(self, tool: str) -> MCPError | None:
        return self._hooks.refusal_of(tool)

    def happened(self, event: Event) -> None:
        if isinstance(event, StateChanged):
            self._server.changed(self._number, event)
        else:
            self._server.happened(event)

    def adopted(self, context: SupervisionContext) -> None:
        """Does nothing: hosts keep their settings."""

    def last_known(self) -> KnownServer | None:
        return self._hooks.last_known()
