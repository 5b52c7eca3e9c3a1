"""The state, history and figures of one server, and a snapshot of them for the application."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.rpc.unparsed_output import UnparsedOutput
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.events import ServerState, StateChanged
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.policy import Loss, Recovery
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.event_loop import EventLoop
from gaia.runtime.locks import reentrant_lock

_WINDOW = 512
"""The number of last calls that the percentiles cover."""


class StandbyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The process that waits to take over when the server is lost. Durations in seconds."""

    state: Literal["starting", "ready", "retrying"]
    """``starting``: it is being started and greeted. ``ready``: it takes over at once. ``retrying``: it has failed, or
    was not started yet, and starts in `retry_in`."""
    pid: int | None = None
    """The id of its process; None while there is none."""
    retry_in: float | None = None
    """Until its next start; None unless it is ``retrying``."""
    last_error: str | None = None
    """The last failure of a stand-by of this server; None if there was none."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one of several replicas of a server."""

    replica: int
    """Its number, from 1. The number of a removed replica is not used again."""
    state: ServerState
    """Its state."""
    placement: PlacementStatus | None = None
    """Where it runs; None while it has no place."""
    pid: int | None = None
    """The id of its process on that node; None while there is none."""
    in_flight: int = 0
    """Calls handed to it and not answered yet."""
    generation: int = 0
    """The number of its present start."""
    restarts: int = 0
    """How many times it became ready again after it had ended."""
    last_error: str | None = None
    """Its last failure; None if there was none."""
    standby: StandbyStatus | None = None
    """The process that waits to take over; None if there is none and none is wanted now."""


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one server. Durations are in seconds. The figures may be from slightly different moments."""

    name: str
    """The server's name."""
    state: ServerState
    """Its state."""
    generation: int = 0
    """The number of the present start of the server, or of the last one, from 1. Stand-bys are starts, too."""
    pid: int | None = None
    """The id of the server's process; None while there is none."""
    restarts: int = 0
    """How many times it became ready again after it had ended."""
    in_flight: int = 0
    """Calls handed to the server and not answered yet."""
    queued: int = 0
    """Calls that wait for the server to be ready."""
    tool_count: int = 0
    """Tools on offer, after filtering."""
    last_error: str | None = None
    """The last failure of the server itself; None if there was none."""
    retry_in: float | None = None
    """Until the next start of a server that is down; None if it is up, or being started, or not tried again."""
    uptime: float | None = None
    """Since it became ready; None while it is not."""
    calls: int = 0
    """Requests that have ended, failed ones included."""
    errors: int = 0
    """Requests that failed."""
    latency_p50: float | None = None
    """The median of the last 512 calls, waiting included; None before the first one."""
    latency_p95: float | None = None
    """95 % of the last 512 calls took at most this long; None before the first one."""
    noise_lines: int = 0
    """Lines on its standard output that are not messages."""
    noise_bytes: int = 0
    """The size of these lines, in bytes."""
    protocol_version: str | None = None
    """The protocol revision of the last handshake; None before the first one."""
    recyclings: int = 0
    """How many times a new process replaced it while it was ready. These are not restarts."""
    last_recycling: str | None = None
    """Why it was last replaced, such as ``recycled: max_memory``."""
    standby: StandbyStatus | None = None
    """The process that waits to take over; None if there is none and none is wanted now."""
    placement: PlacementStatus | None = None
    """Where a server with a ``placement`` runs; None while it has no place. Of replicas, the place of the first
    ready one."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """Each replica, if it may have several."""
    instances: int = 0
    """Processes for single sessions or clients of a gateway. The figures about calls, restarts and output include them;
    state, process and latencies are those of the shared process."""

    @property
    def summary(self) -> str:
        """A few words for logs and debuggers, such as ``'time' ready, 2 tools``."""
        return f"{self.name!r} {self.state.value}, {self.tool_count} tool{'' if self.tool_count == 1 else 's'}"


class CallStatistics:
    """Counts calls and errors, and remembers the last latencies. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self.calls = 0
        self.errors = 0
        self._latencies: deque[float] = deque(maxlen=_WINDOW)

    def record(self, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self.calls += 1
            self.errors += failed
            self._latencies.append(seconds)

    def percentiles(self, *ranks: float) -> list[float | None]:
        with self._lock:
            ordered = sorted(self._latencies)
        if not ordered:
            return [None for _ in ranks]
        # Nearest rank: each result is a latency that was measured.
        return [ordered[max(0, math.ceil(rank * len(ordered)) - 1)] for rank in ranks]


class Condition:
    """The facts about one server. Only the supervisor's thread changes them; other threads read single values."""

    def __init__(self, context: SupervisionContext, call_queue: CallQueue) -> None:
        self.recovery = Recovery(context.policy, context.negotiation, context.rng)
        self.profile: ServerProfile | None = None
        self.starts = 0
        self.generation = 0
        """The number of the present start, or of the last one."""
        self.restarts = 0
        self.retry_at: float | None = None
        """The time of the next start, while the server waits for it; a reading of the clock."""
        self.last_error: str | None = None
        self.loss: Loss | None = None
        self.current: Generation | None = None
        """The running server, or a lost one that is being ended. The next start waits for that end."""
        self.recyclings = 0
        self.last_recycling: str | None = None
        self.standby: Callable[[], StandbyStatus | None] = lambda: None
        """Returns the status of the stand-by. Set once."""
        self.down_reason: str | None = None
        """Why calls find no server, or found none in the last downtime."""
        self._earlier_unparsed = UnparsedOutput()
        self._context = context
        self._call_queue = call_queue
        self._down_since: float | None = None
        """When the downtime began, a reading of the clock; None if there is none."""

    @property
    def ever_ready(self) -> bool:
        return self.recovery.ever_ready

    @property
    def keep_trying(self) -> bool:
        """Whether a failed start is followed by others, if the policy permits: from the start, or once it was ready."""
        return self.recovery.keep_trying

    @property
    def state(self) -> ServerState:
        return self._call_queue.state

    @property
    def pid(self) -> int | None:
        current = self.current
        return None if current is None else current.pid

    @property
    def retry_in(self) -> float | None:
        """Seconds until the next start; None if the server does not wait for one."""
        moment = self.retry_at
        if moment is None or self.state not in (ServerState.FAILED, ServerState.RESTARTING):
            return None
        return max(0.0, moment - self._context.clock.monotonic())

    @property
    def uptime(self) -> float | None:
        """Seconds; None while the server is not ready."""
        current = self.current
        since = None if current is None else current.ready_since
        return None if since is None else self._context.clock.monotonic() - since

    @property
    def unparsed(self) -> UnparsedOutput:
        current = self.current
        return self._earlier_unparsed if current is None else self._earlier_unparsed.plus(current.connection.unparsed)

    def status(self, statistics: CallStatistics, tool_count: int) -> ServerStatus:
        p50, p95 = statistics.percentiles(0.50, 0.95)
        unparsed, profile, current = self.unparsed, self.profile, self.current
        return ServerStatus(
            name=self._context.name,
            state=self.state,
            generation=self.generation,
            pid=self.pid,
            restarts=self.restarts,
            in_flight=self._call_queue.in_flight,
            queued=self._call_queue.queued,
            tool_count=tool_count,
            last_error=self.last_error,
            retry_in=self.retry_in,
            uptime=self.uptime,
            calls=statistics.calls,
            errors=statistics.errors,
            latency_p50=p50,
            latency_p95=p95,
            noise_lines=unparsed.lines,
            noise_bytes=unparsed.size,
            protocol_version=None if profile is None else profile.protocol_version,
            recyclings=self.recyclings,
            last_recycling=self.last_recycling,
            standby=self.standby(),
            placement=None if current is None else current.placement,
        )

    # For the supervisor.

    def move_to(self, new: ServerState, reason: str | None = None) -> None:
        old = self._call_queue.move_to(new, reason)
        if old is not new:
            self._context.hooks.happened(StateChanged(self._context.name, old, new, self.generation, reason))

    def terminated(self) -> None:
        generation, self.current = self.current, None
        if generation is not None:
            self.left(generation)

    def left(self, generation: Generation) -> None:
        self._earlier_unparsed = self._earlier_unparsed.plus(generation.connection.unparsed)

    def begin_downtime(self, reason: str | None = None) -> None:
        """Note that calls find no server from now on. A downtime that has begun keeps its start and its reason."""
        if self._down_since is None:
            self._down_since = self._context.clock.monotonic()
            self.down_reason = reason

    def cancel_downtime(self) -> None:
        self._down_since = None

    def cancel_first_downtime(self) -> None:
        if not self.ever_ready:
            self.cancel_downtime()

    def end_downtime(self, now: float) -> float | None:
        """Note that the server is ready. Returns the downtime in seconds; None if there was none."""
        since, self._down_since = self._down_since, None
        if since is None:
            return None
        self.restarts += 1
        return now - since


class ServerCore(NamedTuple):
    """The objects that all parts of one server's supervision use. Belongs to the supervisor's thread."""

    context: SupervisionContext
    loop: EventLoop
    call_queue: CallQueue
    condition: Condition
