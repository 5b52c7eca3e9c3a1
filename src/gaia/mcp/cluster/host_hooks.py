"""On a host: what its supervisor tells, as events for the driver; which calls may go on without asking the driver."""

from __future__ import annotations

import itertools
from typing import Any

from gaia.mcp.cluster.host_events import HostEvents
from gaia.mcp.cluster.wire import (
    EventHappened,
    HostEvent,
    KnownTools,
    ListingBegan,
    StateReached,
    ToolsListed,
    ToolsRemembered,
    WireProfile,
)
from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.messages import says_safe_to_repeat
from gaia.mcp.supervision.context import KnownServer, Listing, SupervisionContext
from gaia.mcp.supervision.events import Event, Restarted, ServerState, StateChanged
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.runtime.clock import Clock
from gaia.runtime.locks import reentrant_lock

_KEPT_LISTINGS = 4
"""A driver that is further behind has to take over a later one before its calls are made."""


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
        self._users: list[HostEvents] = []
        self._listed: dict[int, dict[str, Any]] = {}
        """The definitions by tool, of the last listings, by their numbers."""
        self._last: ToolsListed | None = None
        """The last listing."""
        self._remembered: ToolsRemembered | None = None
        """What the tools were before that."""

    def join(self, events: HostEvents) -> None:
        """Tell another user, from now on, and what it would know if it had been there before."""
        with self._lock:
            self._users.append(events)
            if self._last is not None:
                events.add(ListingBegan(self._last.number))
                events.add(self._last)
            elif self._remembered is not None:
                events.add(self._remembered)
            if self.supervisor is not None and self.supervisor.state is not ServerState.CREATED:
                events.add(self._state(self.supervisor, self.supervisor.state, None, None))

    def part(self, events: HostEvents) -> None:
        """A user is gone."""
        with self._lock:
            if events in self._users:
                self._users.remove(events)

    def listing_begins(self) -> Listing:
        number = next(self._numbers)
        self._tell(ListingBegan(number))
        return Listing(number, self._clock.monotonic() + self._timeout)

    def tools_remembered(self, definitions: list[Any]) -> None:
        with self._lock:
            self._remembered = ToolsRemembered(definitions)
            self._tell(self._remembered)

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        named = {
            one["name"]: one for one in definitions or () if isinstance(one, dict) and isinstance(one.get("name"), str)
        }
        profile = None if self.supervisor is None else self.supervisor.condition.profile
        listed = ToolsListed(listing.number, definitions, None if profile is None else WireProfile.of(profile))
        with self._lock:
            if self._last is None or self._last.number < listed.number:
                self._last = listed
                self._listed[listed.number] = named
                for number in sorted(self._listed)[:-_KEPT_LISTINGS]:
                    del self._listed[number]
            self._tell(listed)

    def knows(self, listing: int, tool: str) -> bool:
        """Whether a driver that has taken over the listing of that number knows the tool as the server has it now."""
        with self._lock:
            if self._last is None or listing == self._last.number:
                return True
            known = self._listed.get(listing)
            return known is not None and known.get(tool) == self._listed[self._last.number].get(tool)

    def refusal_of(self, tool: str) -> MCPError | None:  # noqa: ARG002 - it depends on the user: see `HostRequest`
        return None

    def safe_to_repeat(self, tool: str) -> bool:
        with self._lock:
            last = None if self._last is None else self._listed[self._last.number].get(tool)
        annotations = None if last is None else last.get("annotations")
        return isinstance(annotations, dict) and says_safe_to_repeat(annotations)

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
        loss = condition.loss
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
            loss=None if loss is None else loss.reason,
            exit_code=None if loss is None else loss.ending.exit_code,
            signal=None if loss is None else loss.ending.signal,
        )

    def _tell(self, event: HostEvent) -> None:
        with self._lock:
            for events in self._users:
                events.add(event)
