"""On a host: what its supervisor tells, as events for the driver; which calls may go on without asking the driver."""

from __future__ import annotations

import itertools
from typing import Any

from gaia.locks import reentrant_lock
from gaia.mcp.client.cluster.host_events import HostEvents
from gaia.mcp.client.cluster.lease import Lease
from gaia.mcp.client.cluster.wire import EventHappened, KnownTools, StateReached, ToolsListed, WireProfile
from gaia.mcp.client.supervision.context import KnownServer, Listing, SupervisionContext
from gaia.mcp.client.supervision.events import Event, Restarted, ServerState, StateChanged
from gaia.mcp.client.supervision.subscriptions import Subscriptions
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.errors import MCPError

__all__ = ["HostHooks", "NotApproved"]


class NotApproved(MCPError):
    """The driver has to decide anew whether the call may be made."""


class HostHooks:
    """The `SupervisionHooks` of a host. Those of the driver's client follow, when it has fetched the events."""

    def __init__(self, name: str, timeout: float, lease: Lease, events: HostEvents, known: KnownTools | None) -> None:
        self.subscriptions = Subscriptions()
        self._known = known
        self.supervisor: Supervisor | None = None
        self._name = name
        self._timeout = timeout
        self._lease = lease
        self._events = events
        self._numbers = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns the rest."""
        self._listed: dict[int, dict[str, Any]] = {}
        """The definitions by tool, of listings that the driver has not taken over yet, by their numbers."""
        self._taken_over: dict[str, Any] | None = None
        """Those of the listing that the driver has checked last."""

    def listing_begins(self) -> Listing:
        number = next(self._numbers)
        self._events.add(ToolsListed(number))
        return Listing(number, self._lease.clock.monotonic() + self._timeout)

    def tools_listed(self, definitions: list[Any], listing: Listing) -> None:
        named = {one["name"]: one for one in definitions if isinstance(one, dict) and isinstance(one.get("name"), str)}
        with self._lock:
            self._listed[listing.number] = named
        profile = None if self.supervisor is None else self.supervisor.condition.profile
        self._events.add(ToolsListed(listing.number, definitions, None if profile is None else WireProfile.of(profile)))

    def checked(self, number: int) -> None:
        """The driver has taken over a listing."""
        with self._lock:
            self._taken_over = self._listed.pop(number, self._taken_over)
            for older in [one for one in self._listed if one < number]:
                del self._listed[older]

    def refusal_of(self, tool: str) -> MCPError | None:
        """A call that waited here was permitted by the definition that the driver knew, and may be too late by now."""
        if self._lease.is_over:
            return NotApproved("the lease is over")
        with self._lock:
            if not self._listed:
                return None
            known, now = self._taken_over, self._listed[max(self._listed)]
        if known is not None and known.get(tool) == now.get(tool):
            return None
        return NotApproved(f"the definition of {tool} has changed")

    def last_known(self) -> KnownServer | None:
        known = self._known
        return None if known is None else (None if known.profile is None else known.profile.restored(), known.tools)

    def adopted(self, context: SupervisionContext) -> None:
        """Does nothing: a host keeps its settings."""

    def happened(self, event: Event) -> None:
        if isinstance(event, StateChanged):
            self._reached(event.new, event.reason, event.generation)
            return
        if isinstance(event, Restarted):
            # A fresh process may have taken the place of one that was ready.
            self._reached(ServerState.READY, None, event.generation)
        fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "server"}
        self._events.add(EventHappened(type(event).__name__, fields))

    def _reached(self, state: ServerState, reason: str | None, generation: int) -> None:
        if self.supervisor is None:
            return
        condition = self.supervisor.condition
        self._events.add(
            StateReached(
                state=state,
                reason=reason,
                generation=generation,
                pid=condition.pid,
                last_error=condition.last_error,
                retry_in=condition.retry_in,
                restarts=condition.restarts,
                recyclings=condition.recyclings,
                last_recycling=condition.last_recycling,
                profile=None if condition.profile is None else WireProfile.of(condition.profile),
            )
        )
