"""What the driver knows of a placed server at any time."""

from __future__ import annotations

import time

from gaia.mcp.cluster.link import HostLink
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.replica_calls import ReplicaCalls
from gaia.mcp.cluster.wire import Greeting, StateReached
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import CallStatistics, ServerStatus
from gaia.mcp.transports.base import PlacementStatus


class PlacedCondition:
    """Facts of one placed server. Only the loop's thread changes them; other threads read single values."""

    def __init__(self, name: str, calls: PlacedCalls | ReplicaCalls) -> None:
        self.profile: ServerProfile | None = None
        self.restarts = 0
        self.ever_ready = False
        self.keep_trying = False
        self.last_error: str | None = None
        self.generation = 0
        """The number of the server's present start, over all hosts."""
        self.node: str | None = None
        """Of the host that was greeted last: the host name of its machine."""
        self._name = name
        self._calls = calls
        self._earlier_starts = 0
        """On hosts before the present one."""
        self._earlier_restarts = 0
        self.placement: PlacementStatus | None = None
        """Where it runs; None while it has no place."""
        self.down_since: float | None = None
        """Since when its host is lost or silent, until its server is ready again."""
        self._hosts = 0
        self._host: StateReached | None = None
        self._retry_at: float | None = None
        self._ready_since: float | None = None
        calls.retry_in = self._retry_in

    @property
    def uptime(self) -> float | None:
        """Seconds; None if the server was not ready when its host was heard last."""
        return None if self._ready_since is None else time.monotonic() - self._ready_since

    def _retry_in(self) -> float | None:
        return None if self._retry_at is None else max(0.0, self._retry_at - time.monotonic())

    def host_greeted(self, greeting: Greeting, link: HostLink | None) -> None:
        self.node = greeting.node
        self._earlier_starts, self._earlier_restarts, self._host = self.generation, self.restarts, None
        self._hosts += 1
        self.placement = PlacementStatus(
            node=greeting.node,
            node_id=greeting.node_id,
            actor=None if link is None else link.actor_id,
            host_pid=greeting.pid,
            hosts=self._hosts,
        )

    def host_reached(self, event: StateReached) -> None:
        self._host = event
        self.generation = self._earlier_starts + event.generation
        self.restarts = self._earlier_restarts + event.restarts
        self.last_error = event.last_error or self.last_error
        self._retry_at = None if event.retry_in is None else time.monotonic() + event.retry_in
        self._ready_since = time.monotonic() if event.state is ServerState.READY else None
        if event.profile is not None:
            self.profile = event.profile.restored()

    def host_lost(self, reason: str) -> None:
        self.host_silent(reason)
        self._host = self._retry_at = self._ready_since = self.placement = None

    def host_silent(self, reason: str) -> None:
        """The host does not answer, and may be lost."""
        self.last_error = reason
        if self.down_since is None:
            self.down_since = time.monotonic()

    def host_follows(self, seconds: float | None) -> None:
        """Another host is started in so many seconds; None: never."""
        self._retry_at = None if seconds is None else time.monotonic() + seconds

    def ready(self) -> float | None:
        """The server is ready. Returns for how many seconds it was not, if its host was lost or silent meanwhile."""
        self.ever_ready = self.keep_trying = True
        since, self.down_since = self.down_since, None
        if since is None:
            return None
        self._earlier_restarts += 1
        self.restarts += 1
        return time.monotonic() - since

    def status(self, statistics: CallStatistics, tool_count: int) -> ServerStatus:
        """A snapshot; `statistics` and `tool_count` are the client's."""
        p50, p95 = statistics.percentiles(0.50, 0.95)
        host, profile = self._host, self.profile
        state, placement = self._calls.state, self.placement
        if state is ServerState.READY and placement is None:
            # Its host was lost between the two.
            state, placement = self._calls.state, self.placement
        waits = state in (ServerState.FAILED, ServerState.RESTARTING)
        return ServerStatus(
            name=self._name,
            state=state,
            generation=self.generation,
            pid=None if host is None else host.pid,
            restarts=self.restarts,
            in_flight=self._calls.in_flight,
            queued=len(self._calls),
            tool_count=tool_count,
            last_error=self.last_error,
            retry_in=self._retry_in() if waits else None,
            uptime=self.uptime,
            calls=statistics.calls,
            errors=statistics.errors,
            latency_p50=p50,
            latency_p95=p95,
            protocol_version=None if profile is None else profile.protocol_version,
            recyclings=0 if host is None else host.recyclings,
            last_recycling=None if host is None else host.last_recycling,
            placement=placement,
        )
