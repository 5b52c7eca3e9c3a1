"""What a supervisor is told by its client, and whom it tells."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from gaia.mcp.client.protocol.era import ClientIdentity
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.supervision.events import Event
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.client.supervision.subscriptions import Subscriptions
from gaia.mcp.errors import MCPError

__all__ = ["SupervisionHooks", "SupervisionSettings"]


class SupervisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds."""

    identity: ClientIdentity
    negotiation: Negotiation
    """Remembers what it found; used by the supervisor's thread alone."""
    ready_timeout: float
    policy: RestartPolicy
    health_interval: float
    health_timeout: float
    max_pending: int


class SupervisionHooks(Protocol):
    """What the supervisor tells its client, on its own thread. Implementations are ours: quick, and never raise."""

    def tools_listed(self, definitions: list[Any]) -> None: ...

    @property
    def subscriptions(self) -> Subscriptions:
        """What the server is to tell, whichever connection it has."""

    def refusal_of(self, tool: str) -> MCPError | None:
        """Asked of each tool call that waited, before the server gets it: what its caller is told instead, if anything.

        `tool` is the server's own name of the tool.
        """

    def happened(self, event: Event) -> None: ...
