"""What the driver knows of a server that has replicas at any time."""

from __future__ import annotations

from collections.abc import Mapping

from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.placed_server import PlacedServer
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import CallStatistics, ReplicaStatus, ServerStatus
from gaia.mcp.transports.base import PlacementStatus

_NOTHING = CallStatistics()


def joint_state(states: list[ServerState], *, ever_ready: bool) -> ServerState:
    """That of a server whose replicas have these states: it is ready while one of them is."""
    for state in (ServerState.READY, ServerState.EXITED):
        if state in states:
            return state
    if {ServerState.CREATED, ServerState.STARTING, ServerState.RESTARTING} & set(states):
        return ServerState.RESTARTING if ever_ready else ServerState.STARTING
    return ServerState.FAILED


class ReplicatedCondition:
    """Facts of a server with replicas. Only the loop's thread changes them; other threads read single values."""

    def __init__(self, name: str, calls: PlacedCalls) -> None:
        self.ever_ready = False
        self.keep_trying = False
        self.last_error: str | None = None
        self.restarts = 0
        """How many times it became ready after none of its replicas was."""
        self.replicas: Mapping[int, PlacedServer] = {}
        """Replaced as a whole."""
        self.starts_of_removed = 0
        """How many times the servers of replicas were started that are removed."""
        self._name = name
        self._calls = calls
        calls.retry_in = self._retry_in

    def _retry_in(self) -> float | None:
        known = [seconds for one in self.replicas.values() if (seconds := one.call_queue.retry_in()) is not None]
        return min(known, default=None)

    @property
    def generation(self) -> int:
        """How many times a replica was started."""
        return self.starts_of_removed + sum(one.condition.generation for one in self.replicas.values())

    @property
    def profile(self) -> ServerProfile | None:
        first = self._first()
        return None if first is None else first.condition.profile

    def _first(self) -> PlacedServer | None:
        """The first that is ready, or else that has told anything."""
        replicas = self.replicas.values()
        ready = (one for one in replicas if one.state is ServerState.READY)
        known = (one for one in replicas if one.condition.profile is not None)
        return next(ready, None) or next(known, None)

    def status(self, statistics: CallStatistics, tool_count: int) -> ServerStatus:
        """A snapshot; `statistics` and `tool_count` are the client's."""
        p50, p95 = statistics.percentiles(0.50, 0.95)
        all_of_them = {number: one.condition.status(_NOTHING, 0) for number, one in self.replicas.items()}
        ready = [one for one in all_of_them.values() if one.state is ServerState.READY]
        first = self._first()
        placement: PlacementStatus | None = ready[0].placement if ready else None
        return ServerStatus(
            name=self._name,
            state=self._calls.state,
            generation=self.generation,
            pid=ready[0].pid if ready else None,
            restarts=self.restarts,
            in_flight=self._calls.in_flight,
            queued=len(self._calls),
            tool_count=tool_count,
            last_error=self.last_error,
            retry_in=self._retry_in() if self._calls.state is ServerState.FAILED else None,
            uptime=max((one.uptime for one in ready if one.uptime is not None), default=None),
            calls=statistics.calls,
            errors=statistics.errors,
            latency_p50=p50,
            latency_p95=p95,
            protocol_version=None if first is None else first.condition.status(_NOTHING, 0).protocol_version,
            recyclings=sum(one.recyclings for one in all_of_them.values()),
            last_recycling=next((one.last_recycling for one in all_of_them.values() if one.last_recycling), None),
            placement=placement,
            replicas=tuple(
                ReplicaStatus(
                    replica=number,
                    state=one.state,
                    placement=one.placement,
                    pid=one.pid,
                    in_flight=one.in_flight,
                    generation=one.generation,
                    restarts=one.restarts,
                    last_error=one.last_error,
                )
                for number, one in all_of_them.items()
            ),
        )
