"""What one replica has of the calls of its server: its own state, and a gate of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.link import HostLink
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.errors import CallCancelled, ServerCrashed
from gaia.mcp.rpc.call import Call, RequestOwner
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.events import ServerState


class ReplicaCalls:
    """The thread of the cluster's loop changes it; other threads read single values.

    What it does not decide itself is that of all replicas: the backlog, and to which gate a call goes.
    """

    ready: Connection | None = None

    def __init__(self, calls: PlacedCalls) -> None:
        self.next_id = calls.next_id
        self.retry_in: Callable[[], float | None] = lambda: None
        self.state = ServerState.CREATED
        self.reason: str | None = None
        self.gate: Gate | None = None
        """The one that was opened last, which may be closed again."""
        self._calls = calls
        self._differing: Collection[str] = ()

    def __len__(self) -> int:
        """No call waits for one replica."""
        return 0

    @property
    def in_flight(self) -> int:
        return 0 if self.gate is None else self.gate.in_flight

    def submit(self, call: Call) -> bool:
        return self._calls.submit(call)

    def expire(self, call: Call) -> bool:
        return self._calls.expire(call)

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        return self._calls.cancel(call, error)

    # The thread of the loop.

    def differ(self, tools: Collection[str]) -> None:
        """These tools are defined otherwise there than the client goes by."""
        self._differing = tools
        if self.gate is not None:
            self.gate.differing = tools

    def open(self, gate: Gate) -> None:
        gate.differing = self._differing
        self.gate = gate
        self._calls.open(gate)

    def close(self) -> None:
        if self.gate is not None:
            self._calls.close(self.gate.incarnation)

    def move_to(self, state: ServerState, reason: str | None, *, finish: bool = False) -> ServerState:
        old, self.state, self.reason = self.state, state, reason
        if state is ServerState.CLOSED:
            self.close()
            if not finish:
                self.end_flights()
        return old

    def when_finished(self, task: Callable[[], object]) -> None:
        """Run `task` once, when no call is under way there any more."""
        if self.gate is None:
            task()
        else:
            self._calls.when_finished(task, self.gate.link)

    def end_flights(self) -> None:
        """End the calls that are under way there: as cancelled if the server is closed, and else as in a crash."""
        if self.gate is not None:
            is_closed = self._calls.state is ServerState.CLOSED
            self._calls.end_flights(self.gate.link, None if is_closed else self._removed)

    def _removed(self, call: Call) -> ServerCrashed:
        return ServerCrashed(f"the replica to which {call.method} was sent did not answer before it was removed")

    def listed(self, incarnation: str, number: int) -> None:
        self._calls.listed(incarnation, number)

    def deliver_answers(self, incarnation: str) -> None:
        self._calls.deliver_answers(incarnation)

    def progressed(self, number: int, params: dict[str, Any], now: float) -> None:
        self._calls.progressed(number, params, now)

    def logged(self, number: int, params: dict[str, Any]) -> None:
        self._calls.logged(number, params)

    def relayed(self, link: HostLink | None = None) -> list[RequestOwner]:
        """The owners of the calls for clients of a gateway that a request of this replica may belong to."""
        own = link if link is not None or self.gate is None else self.gate.link
        return [] if own is None else self._calls.relayed(own)

    def after_fork(self) -> None:
        self.state = ServerState.CLOSED
