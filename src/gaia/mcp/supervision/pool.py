"""`Pool`: a server with replicas, each with a supervisor of its own, under one client.

The server is ready while one replica is. All replicas have one catalog of tools. The client goes by the listing that
changed last, and a replica that defines a tool otherwise gets no calls of this tool.

The replicas' supervisors report to the pool on their own threads, through `_ReplicaHooks`. A lock serialises what the
pool makes of it. What the pool reports itself goes through an outbox, whose order is that of the changes: no thread
holds the lock while the client's hooks run.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.supervision.context import Listing, SupervisionContext, SupervisionHooks
from gaia.mcp.supervision.events import (
    Event,
    GaveUp,
    ReplicaChanged,
    ResourceUpdated,
    Restarted,
    ServerState,
    StateChanged,
)
from gaia.mcp.supervision.maintenance import Maintenance
from gaia.mcp.supervision.pin import Pin
from gaia.mcp.supervision.pool_queue import PoolQueue, ReplicaQueue
from gaia.mcp.supervision.status import CallStatistics, ReplicaStatus, ServerStatus
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.runtime import log
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.telemetry import metrics

logger = get_logger(__name__)

_DISCONNECTED = "it was disconnected"
_NOT_STARTED = "it could not be started"
_ALL_LOST = "all of its replicas were lost"
_NOTHING = CallStatistics()
_PRECEDENCE = (ServerState.READY, ServerState.EXITED, ServerState.AUTHORIZING)
_UNDER_WAY = {ServerState.CREATED, ServerState.STARTING, ServerState.RESTARTING}
_FAILURES = (ServerState.NEEDS_AUTHORIZATION, ServerState.FAILED)


class _Replica(NamedTuple):
    number: int
    supervisor: Supervisor
    queue: ReplicaQueue
    observer: Observer

    @property
    def need(self) -> tuple[bool, bool, int, int]:
        """The replica with the least need is removed first: of those with equal use, the youngest."""
        connection = self.queue.ready
        has_handles = connection is not None and bool(connection.pins.present())
        return connection is not None, has_handles, self.queue.in_flight, -self.number

    def status(self) -> ServerStatus:
        return self.supervisor.condition.status(_NOTHING, 0)


class Pool:
    """Several replicas of one server. It has the methods of a supervisor, and lives once, too. Thread-safe."""

    def __init__(self, context: SupervisionContext) -> None:
        self.name = context.name
        self._context = context
        self.call_queue = PoolQueue(
            context.name, context.max_pending, context.next_id, self.wake, context.hooks.refusal_of
        )
        self.next_id = self.call_queue.next_id
        self.condition = PoolCondition(self)
        self._lock = reentrant_lock()
        """Owns everything below. Threads that only read use one value, which is replaced as a whole."""
        self._changing_in: set[int] = set()
        """The threads that have the lock, or wait for it. See `_change`."""
        self._is_cut_short = False
        """Whether a signal handler has stopped the pool in the middle of a change, in the same thread."""
        self.replicas: Mapping[int, _Replica] = {}
        """By number. Removed ones that still finish their calls are in `leaving`."""
        self.leaving: tuple[_Replica, ...] = ()
        self._numbers = itertools.count(1)
        self._settled = Latch()
        self._closing: str | None = None
        self._listings: dict[int, tuple[Mapping[str, Any], list[Any]]] = {}
        """The tools of each replica: by name, and as it has listed them."""
        self._in_force: Mapping[str, Any] = {}
        """The definitions that the client goes by."""
        self._asked: set[int] = set()
        """Replicas that were asked for their tools because those of another one have changed."""
        self._successor: SupervisionContext | None = None
        self._down_since: float | None = None
        self._outbox: deque[Callable[[], object]] = deque()
        """Reports to the client, and what follows them. Filled under the lock."""
        self._turn: dict[None, object] = {}
        """Of the call that empties the outbox. Not a lock, because an interrupted thread must be able to find out
        whether it has the turn."""
        self._waiting = _WaitingCalls(context.name, self.call_queue)

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """Hold the lock. A signal handler may call `stop` meanwhile: see there."""
        thread = threading.get_ident()
        is_first = thread not in self._changing_in
        try:
            self._changing_in.add(thread)
            with self._lock:
                yield
        finally:
            if is_first:
                self._changing_in.discard(thread)

    @property
    def _all(self) -> tuple[_Replica, ...]:
        return (*self.replicas.values(), *self.leaving)

    @property
    def state(self) -> ServerState:
        return self.call_queue.state

    @property
    def is_forked(self) -> bool:
        return any(one.supervisor.is_forked for one in self._all)

    @property
    def is_fresh(self) -> bool:
        """See `Supervisor.is_fresh`."""
        return self.state is ServerState.CREATED and self._closing is None

    @property
    def is_running(self) -> bool:
        return any(one.supervisor.is_running for one in self.replicas.values())

    def start(self, *, keep_trying: bool = False) -> bool:
        """Start all replicas, and wait until the first is ready, or all have failed. See `Supervisor.start`."""
        metrics.observed.add(self._waiting)
        with self._change():
            self.condition.keep_trying = keep_trying
            self._move_to(ServerState.STARTING)
        self._tell()
        self.scale(self._context.replicas)
        self._settled.wait()
        if self.state in _FAILURES and not self.condition.keep_trying:
            self._closing = _NOT_STARTED
            # Nothing is left of a failed start but its state.
            for one in self._all:
                one.supervisor.stop()
        log.flush()
        return self.state is ServerState.READY or (self.state is ServerState.EXITED and self._context.lazy)

    def scale(self, number: int) -> None:
        """Have this many replicas. New ones are started, and others finish their calls; this waits for neither."""
        with self._change():
            if self._closing is None and self.state is not ServerState.CREATED:
                self._scale(number)
        self._tell()
        if self._is_cut_short:
            self.stop()

    def _scale(self, number: int) -> None:
        before = len(self.replicas)
        while len(self.replicas) < number and self._closing is None:
            self._add()
        while len(self.replicas) > number:
            self._remove(min(self.replicas.values(), key=lambda one: one.need))
        if self._closing is None:
            self._update(None)
        if before not in (0, number):
            # Handlers of log events are code of the application.
            self._outbox.append(
                partial(logger.info, "replicas_changed", server=self.name, replicas=number, before=before)
            )

    def _add(self) -> None:
        number = next(self._numbers)
        context = self._of_replica(number, self._context)
        supervisor = Supervisor(context, partial(ReplicaQueue, self.call_queue), lambda: self._closed(number))
        queue = supervisor.call_queue
        assert isinstance(queue, ReplicaQueue), "it was made so"
        self._replace({**self.replicas, number: _Replica(number, supervisor, queue, context.observer)}, self.leaving)
        # The pool decides whether it goes on when all have failed.
        supervisor.begin(keep_trying=True)
        if self._closing is not None:
            # A signal handler has stopped the pool meanwhile, and may not have seen this replica.
            supervisor.request_stop()

    def _remove(self, replica: _Replica) -> None:
        kept = {number: one for number, one in self.replicas.items() if one is not replica}
        self._replace(kept, (*self.leaving, replica))
        self._listings.pop(replica.number, None)
        self.condition.starts_of_removed += replica.supervisor.condition.generation
        replica.supervisor.request_stop(self._context.drain_timeout)

    def _replace(self, replicas: Mapping[int, _Replica], leaving: tuple[_Replica, ...]) -> None:
        self.replicas, self.leaving = replicas, leaving
        self.call_queue.queues = tuple(one.queue for one in replicas.values())
        self.call_queue.leaving = tuple(one.queue for one in leaving)
        self.call_queue.changed()

    def _closed(self, number: int) -> None:
        """A replica has ended, with all of its processes."""
        with self._change():
            self._replace(self.replicas, tuple(one for one in self.leaving if one.number != number))
            is_removed, authorization = self._closing is None, self._context.transport.authorization
        if not is_removed:
            self._context.server_requests.withdraw_all()
        elif authorization is not None:
            # Its supervisor has forbidden further logins, which the others may need.
            authorization.reopen()

    def stop(self, drain: float = 0.0) -> None:
        """See `Supervisor.stop`. In the middle of a change it does not wait: the replicas report to this thread."""
        self.request_stop(drain)
        if threading.get_ident() in self._changing_in:
            self._is_cut_short = True
            return
        for one in self._all:
            one.supervisor.stop(drain)
        metrics.observed.discard(self._waiting)
        log.flush()

    def request_stop(self, drain: float = 0.0) -> None:
        with self._change():
            self._closing = _DISCONNECTED
            if self.state is not ServerState.CREATED:
                self._move_to(ServerState.CLOSED, _DISCONNECTED)
        self._tell()
        self._settled.open()
        for one in self._all:
            one.supervisor.request_stop(drain)

    def abandon(self, release: Callable[[], object]) -> bool:
        """See `Supervisor.abandon`: takes no lock."""
        self._closing = "its client was dropped"
        running = [one.supervisor for one in self._all if one.supervisor.is_running]
        others = iter(running[1:])

        def released() -> None:
            if next(others, None) is None:
                release()

        was_running = [one.abandon(released) for one in running]
        return any(was_running)

    # For the session. All of it is for any thread.

    def wake(self, wanted: Callable[[], int] = lambda: 1) -> None:
        """Start a replica at rest, unless so many start; let those on trial or without a login look at the calls."""
        waiting = [one for one in self.replicas.values() if one.queue.ready is None]
        at_rest = [one for one in waiting if one.queue.state is ServerState.EXITED]
        # Those that are ready without a connection are on trial, or about to take calls.
        under_way = sum(one.queue.state in (*_UNDER_WAY, ServerState.READY) for one in waiting)
        others = [one for one in waiting if one.queue.state in (ServerState.READY, ServerState.NEEDS_AUTHORIZATION)]
        # Counted last: a replica that started until now may have taken the calls.
        for one in (*others, *(at_rest[:1] if under_way < wanted() else ())):
            one.supervisor.wake()

    def pin(self) -> Pin:
        """A way to the process with the fewest handles. Raises NotConnected and ServerUnavailable."""
        ready = [(one, one.queue.ready) for one in self.replicas.values()]
        loads = [(len(connection.pins.present()), connection.load, one) for one, connection in ready if connection]
        if not loads:
            self.wake()
            raise self.call_queue.not_ready()
        return min(loads, key=lambda load: load[:2])[2].supervisor.pin()

    def replace_now(self, drain: float) -> bool:
        """Replace all replicas that are ready, one after the other."""
        ready = [one for one in self.replicas.values() if one.queue.ready is not None]
        replaced = [one.supervisor.replace_now(drain) for one in ready]
        return bool(ready) and all(replaced)

    def reconfigure_now(self, context: SupervisionContext, drain: float) -> list[MCPError | None]:
        """See `Supervisor.reconfigure_now`. One replica tries the configuration; if it fails there, nothing changes.

        Otherwise it is in force, and a replica where it fails is replaced by one that is tried again and again.
        """
        self._successor = context
        first = min(self.replicas.values(), key=lambda one: one.queue.ready is None)
        outcomes = first.supervisor.reconfigure_now(self._of_replica(first.number, context), drain)
        if outcomes == [None]:
            self.adopted()
            # Only now: replicas that are added later have it.
            for one in self.replicas.values():
                if one is not first:
                    for error in one.supervisor.reconfigure_now(self._of_replica(one.number, context), drain):
                        if error is not None:
                            self._renew(one, error)
            self.scale(context.replicas)
        return outcomes

    def _renew(self, replica: _Replica, error: MCPError) -> None:
        with self._change():
            if self._closing is None and self.replicas.get(replica.number) is replica:
                self._remove(replica)
                self._add()
        logger.warning("replica_not_reconfigured", server=self.name, replica=replica.number, error=str(error))

    def _of_replica(self, number: int, context: SupervisionContext) -> SupervisionContext:
        return msgspec.structs.replace(
            context,
            transport=context.transport.for_replica(),
            hooks=_ReplicaHooks(self, number, self._context.hooks),
            negotiation=copy.copy(context.negotiation),
            observer=context.observer.of_replica(number),
        )

    def adopted(self) -> None:
        """The first replica has the configuration of `reconfigure_now`."""
        with self._change():
            context, self._successor = self._successor, None
            if context is None:
                return
            self._context.adopt(context)
            self.call_queue.max_pending = context.max_pending
        self._context.hooks.adopted(context)

    def subscriptions_changed(self) -> None:
        for one in self.replicas.values():
            one.supervisor.maintain(Maintenance.subscribe_again)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        for one in self.replicas.values():
            one.supervisor.notify(method, params)

    # What the replicas report, each on the thread of its supervisor.

    def changed(self, number: int, event: StateChanged) -> None:
        replica = self.replicas.get(number)
        with self._change():
            if replica is not None and event.new is ServerState.READY:
                self._observe_like(replica)
            if replica is not None and (error := replica.supervisor.condition.last_error) is not None:
                self.condition.last_error = error
            placement = None if replica is None else replica.status().placement
            node = None if placement is None else placement.node
            self._report(ReplicaChanged(self.name, number, event.old, event.new, node, event.reason))
            if self._closing is None:
                self._update(event.reason)
        self._tell()
        self._agree()

    def _observe_like(self, replica: _Replica) -> None:
        """Mask its secrets in what is recorded of calls, which may go to any replica."""
        observer, profile = self._context.observer, replica.supervisor.condition.profile
        observer.redact = replica.observer.redact
        observer.protocol_version = None if profile is None else profile.protocol_version

    def _update(self, reason: str | None) -> None:
        """Work out the state of the server from the states of its replicas."""
        condition, states = self.condition, {one.queue.state for one in self.replicas.values()}
        state = next((one for one in _PRECEDENCE if one in states), None)
        if state is None and states & _UNDER_WAY:
            state = ServerState.RESTARTING if condition.ever_ready else ServerState.STARTING
        elif state is None:
            state = next((one for one in _FAILURES if one in states), ServerState.FAILED)
        now, before = self._context.clock.monotonic(), self.state
        if state is ServerState.READY:
            condition.ever_ready = condition.keep_trying = True
        elif before is ServerState.READY and state is not ServerState.EXITED:
            self._down_since = now
        self._move_to(state, condition.last_error if state in _FAILURES else reason)
        if state is ServerState.READY and self._down_since is not None:
            downtime, self._down_since = now - self._down_since, None
            condition.restarts += 1
            self._report(Restarted(self.name, condition.generation, downtime, _ALL_LOST))
        if state in (ServerState.READY, ServerState.EXITED, *_FAILURES):
            # A thread that waits for the start finds it reported.
            self._outbox.append(self._settled.open)

    def _move_to(self, new: ServerState, reason: str | None = None) -> None:
        old = self.call_queue.move_to(new, reason)
        if old is not new:
            generation = self.condition.generation
            self._report(StateChanged(self.name, old, new, generation, reason))

    def _report(self, event: Event) -> None:
        self._outbox.append(partial(self._context.hooks.happened, event))

    def _tell(self) -> None:
        """Empty the outbox, unless another thread does so, or this one further up its stack."""
        turn = object()
        try:
            while self._outbox and self._turn.setdefault(None, turn) is turn:
                while self._outbox:
                    self._outbox.popleft()()
                del self._turn[None]
        finally:
            if self._turn.get(None) is turn:
                del self._turn[None]

    def happened(self, event: Event) -> None:
        """Something else has happened to a replica."""
        if isinstance(event, Restarted):
            if not (event.reason or "").startswith("recycled"):
                # The server as a whole may have been ready all the time.
                return
            event = msgspec.structs.replace(event, generation=self.condition.generation)
        if isinstance(event, GaveUp) and self.state is ServerState.READY:
            return
        if isinstance(event, ResourceUpdated) and event.uri not in self._context.hooks.subscriptions.resources:
            # The request to unsubscribe went to one replica only.
            return
        self._context.hooks.happened(event)

    def listed(self, number: int, definitions: list[Any]) -> None:
        """A replica has listed its tools."""
        tools = {one["name"]: one for one in definitions if isinstance(one, dict) and isinstance(one.get("name"), str)}
        with self._change():
            if number not in self.replicas or self._closing is not None:
                return
            before = self._listings.get(number)
            self._listings[number] = tools, definitions
            is_news = tools == self._in_force or before is None or before[0] != tools
            if is_news:
                self._in_force = tools
            others = [one for one in self.replicas.values() if self._compare(one)] if is_news else []
            asked = number in self._asked
            self._asked.discard(number)
            if not asked:
                self._asked.update(one.number for one in others)
            listing = self._context.hooks.listing_begins()
        if is_news:
            self._context.hooks.tools_listed(definitions, listing)
        for one in () if asked else others:
            one.supervisor.maintain(Maintenance.list_tools)
        self._agree()

    def _compare(self, replica: _Replica) -> bool:
        """Keep calls of tools away from a replica that defines them otherwise. Whether it does so, and is ready."""
        tools = self._listings.get(replica.number, ({}, []))[0]
        names = () if tools == self._in_force else tools.keys() | self._in_force.keys()
        replica.queue.differing = frozenset(name for name in names if tools.get(name) != self._in_force.get(name))
        return bool(replica.queue.differing) and replica.queue.ready is not None

    def _agree(self) -> None:
        """Go by the definitions of another replica, if no ready one has those that are in force."""
        with self._change():
            ready = [one for one in self.replicas.values() if one.queue.state is ServerState.READY]
            known = [self._listings[one.number] for one in ready if one.number in self._listings]
            is_agreed = not known or any(tools == self._in_force for tools, _ in known)
            if not is_agreed:
                self._in_force = known[0][0]
            for one in self.replicas.values():
                self._compare(one)
            listing = self._context.hooks.listing_begins()
        if not is_agreed:
            self._context.hooks.tools_listed(known[0][1], listing)
        self.call_queue.send_waiting()


class PoolCondition:
    """The facts about a server with replicas. The pool changes them; other threads read single values."""

    def __init__(self, pool: Pool) -> None:
        self.ever_ready = False
        self.keep_trying = False
        self.last_error: str | None = None
        self.restarts = 0
        """How often it became ready after none of its replicas was."""
        self.starts_of_removed = 0
        self._pool = pool

    @property
    def generation(self) -> int:
        """The number of starts of all replicas."""
        present = (one.supervisor.condition.generation for one in self._pool.replicas.values())
        return self.starts_of_removed + sum(present)

    @property
    def profile(self) -> ServerProfile | None:
        replicas = sorted(self._pool.replicas.values(), key=lambda one: one.queue.ready is None)
        known = (profile for one in replicas if (profile := one.supervisor.condition.profile) is not None)
        return next(known, None)

    def status(self, statistics: CallStatistics, tool_count: int) -> ServerStatus:
        """A snapshot. State and calls are those of the pool; figures that grow are sums over its replicas."""
        pool, profile = self._pool, self.profile
        replicas = {number: one.status() for number, one in pool.replicas.items()}
        ready = [one for one in replicas.values() if one.state is ServerState.READY]
        first = ready[0] if ready else None
        p50, p95 = statistics.percentiles(0.50, 0.95)
        return ServerStatus(
            name=pool.name,
            state=pool.state,
            generation=self.generation,
            pid=None if first is None else first.pid,
            restarts=self.restarts,
            in_flight=pool.call_queue.in_flight,
            queued=pool.call_queue.queued,
            tool_count=tool_count,
            last_error=self.last_error,
            retry_in=pool.call_queue.retry_in() if pool.state is ServerState.FAILED else None,
            uptime=max((one.uptime for one in ready if one.uptime is not None), default=None),
            calls=statistics.calls,
            errors=statistics.errors,
            latency_p50=p50,
            latency_p95=p95,
            noise_lines=sum(one.noise_lines for one in replicas.values()),
            noise_bytes=sum(one.noise_bytes for one in replicas.values()),
            protocol_version=None if profile is None else profile.protocol_version,
            recyclings=sum(one.recyclings for one in replicas.values()),
            last_recycling=next((one.last_recycling for one in replicas.values() if one.last_recycling), None),
            placement=None if first is None else first.placement,
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
                    standby=one.standby,
                )
                for number, one in replicas.items()
            ),
        )


class _ReplicaHooks:
    """The `SupervisionHooks` of one replica. `hooks` are those of its server."""

    def __init__(self, pool: Pool, number: int, hooks: SupervisionHooks) -> None:
        self._pool = pool
        self._number = number
        self._hooks = hooks
        self.refusal_of, self.safe_to_repeat, self.last_known = hooks.refusal_of, hooks.safe_to_repeat, hooks.last_known

    @property
    def subscriptions(self) -> Subscriptions:
        return self._hooks.subscriptions

    def listing_begins(self) -> Listing:
        """The pool numbers a listing when it has ended, because several replicas may list at once."""
        return Listing(0, 0.0)

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:  # noqa: ARG002
        self._pool.listed(self._number, definitions or [])

    def tools_remembered(self, definitions: list[Any]) -> None:
        if not self._pool.condition.ever_ready:
            self._hooks.tools_remembered(definitions)

    def happened(self, event: Event) -> None:
        if isinstance(event, StateChanged):
            self._pool.changed(self._number, event)
        else:
            self._pool.happened(event)

    def adopted(self, context: SupervisionContext) -> None:  # noqa: ARG002 - a copy of the pool's
        self._pool.adopted()


class _WaitingCalls:
    """What metrics read of the pool itself. The calls in flight are those of its replicas."""

    replica = None
    in_flight = 0

    def __init__(self, name: str, queue: PoolQueue) -> None:
        self.name = name
        self._queue = queue

    @property
    def queued(self) -> int:
        return self._queue.queued
