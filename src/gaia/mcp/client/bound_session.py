"""The requests of a handle that stays with one replica of a placed server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.requests.caller import Caller
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.requests.session_requests import Requests
from gaia.mcp.supervision.status import PlacementStatus
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import deadlines_of

if TYPE_CHECKING:
    # Programs that place no server do not load it.
    from gaia.mcp.cluster.bound_calls import BoundCalls


class BoundSession:
    """The requests of a handle that stays with one replica. Implements `Requests`."""

    waits_in_caller = False

    def __init__(self, session: Requests, calls: BoundCalls, clock: Clock) -> None:
        self._session = session
        self._calls = calls
        self._clock = clock
        self._caller: Caller[BoundCalls] = Caller(calls, clock, session.timeout)
        self.request = self._caller.request
        self.submit = self._caller.submit
        self.relay = self._caller.relay

    @property
    def profile(self) -> ServerProfile | None:
        return self._session.profile

    @property
    def timeout(self) -> float:
        return self._caller.timeout

    @property
    def placement(self) -> PlacementStatus | None:
        """Where the replica runs."""
        return self._calls.placement

    @property
    def is_lost(self) -> bool:
        return self._calls.is_lost

    def close(self) -> None:
        """Take no requests any more."""
        self._calls.close()

    def is_connected(self) -> bool:
        return not self.is_lost

    def subscriptions_changed(self) -> None:
        self._session.subscriptions_changed()

    def watch(self, input_requests: InputRequests) -> None:
        deadlines_of(self._clock).watch(input_requests)
