"""On a host: what its supervisor tells, as events for the driver; which calls may go on without asking the driver."""

from __future__ import annotations

import itertools
from typing import Any

from gaia.locks import reentrant_lock
from gaia.mcp.client.cluster.host_events import HostEvents
from gaia.mcp.client.cluster.lease import Lease
from gaia.mcp.client.cluster.wire import EventHappened, HostEvent, KnownTools, StateReached, ToolsListed, WireProfile
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.supervision.context import KnownServer, Listing, SupervisionContext
from gaia.mcp.client.supervision.events import Event, Restarted, ServerState, StateChanged
from gaia.mcp.client.supervision.subscriptions import Subscriptions
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.errors import MCPError

__all__ = ["HostHooks", "NotApproved"]


class NotApproved(MCPError):
    """The driver has to decide anew whether the call may be made."""


class HostHooks:
    """The `SupervisionHooks` of a host. Those of its users' clients follow, when they have fetched the events."""

    def __init__(self, name: str, timeout: float, clock: Clock, known: KnownTools | None) -> None:
        self.subscriptions = Subscriptions()
        self._known = known
        self.supervisor: Supervisor | None = None
        self._name = name
        self._timeout = timeout
        self._clock = clock
        self._numbers = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns the rest. Held while users are told, so that each is told everything in one order."""
        self._users: dict[HostEvents, Lease] = {}
        self._checked: dict[HostEvents, dict[str, Any]] = {}
        """The definitions that users have checked last, by tool."""
        self._listed: dict[int, dict[str, Any]] = {}
        """The definitions by tool, of listings that some user may still check, by their numbers."""
        self._last: ToolsListed | None = None
        """The last listing."""

    def join(self, events: HostEvents, lease: Lease) -> None:
        """Tell another user, from now on, and what it would know if it had been there before."""
        with self._lock:
            self._users[events] = lease
            if self._last is not None:
                events.add(ToolsListed(self._last.number))
                events.add(self._last)
            if self.supervisor is not None and self.supervisor.state is not ServerState.CREATED:
                events.add(self._state(self.supervisor, self.supervisor.state, None, None))

    def part(self, events: HostEvents) -> None:
        """A user is gone."""
        with self._lock:
            self._users.pop(events, None)
            self._checked.pop(events, None)

    def listing_begins(self) -> Listing:
        number = next(self._numbers)
        self._tell(ToolsListed(number))
        return Listing(number, self._clock.monotonic() + self._timeout)

    def tools_remembered(self, definitions: list[Any]) -> None:
        self.tools_listed(definitions, self.listing_begins())

    def safe_to_repeat(self, tool: str) -> bool:
        """By the last listing, from which no call differs that `refusal_of` lets pass."""
        with self._lock:
            definition = {} if self._last is None else self._listed[self._last.number].get(tool, {})
        return bool(definition) and MCPTool.from_listing(definition).safe_to_repeat

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        definitions = definitions or []
        named = {one["name"]: one for one in definitions if isinstance(one, dict) and isinstance(one.get("name"), str)}
        profile = None if self.supervisor is None else self.supervisor.condition.profile
        listed = ToolsListed(listing.number, definitions, None if profile is None else WireProfile.of(profile))
        with self._lock:
            self._listed[listing.number] = named
            self._last = listed
            self._tell(listed)

    def checked(self, events: HostEvents, number: int) -> None:
        """A user has taken over a listing."""
        with self._lock:
            if events in self._users and number in self._listed:
                self._checked[events] = self._listed[number]
            if len(self._checked) == len(self._users):
                last = 0 if self._last is None else self._last.number
                self._listed = {one: named for one, named in self._listed.items() if one >= min(number, last)}

    def refusal_of(self, tool: str) -> MCPError | None:
        """A call that waited here was permitted by the definition that its user knew, and may be too late by now.

        It is not known whose call it is. What others send again for that loses nothing but time.
        """
        with self._lock:
            leases, last = list(self._users.values()), self._last
            now = None if last is None else self._listed[last.number].get(tool)
            is_known = last is None or all(
                events in self._checked and self._checked[events].get(tool) == now for events in self._users
            )
        if any(lease.is_over for lease in leases):
            return NotApproved("the lease is over")
        if is_known:
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
        self._tell(EventHappened(type(event).__name__, fields))

    def _reached(self, state: ServerState, reason: str | None, generation: int) -> None:
        if self.supervisor is not None:
            self._tell(self._state(self.supervisor, state, reason, generation))

    def _state(
        self, supervisor: Supervisor, state: ServerState, reason: str | None, generation: int | None
    ) -> StateReached:
        condition = supervisor.condition
        return StateReached(
            state=state,
            reason=condition.last_error if generation is None else reason,
            generation=condition.generation if generation is None else generation,
            pid=condition.pid,
            last_error=condition.last_error,
            retry_in=condition.retry_in,
            restarts=condition.restarts,
            recyclings=condition.recyclings,
            last_recycling=condition.last_recycling,
            profile=None if condition.profile is None else WireProfile.of(condition.profile),
        )

    def _tell(self, event: HostEvent) -> None:
        with self._lock:
            for events in self._users:
                events.add(event)
