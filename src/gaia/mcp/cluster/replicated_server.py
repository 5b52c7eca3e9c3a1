"""The driver's side of a placed server with replicas: calls go to whichever replica has the fewest.

Each replica is a `PlacedServer` of its own. Together they have one backlog and one state: the server is ready while any
of its replicas is. All that happens to them comes to the one thread of `ClusterLoop`.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from gaia.mcp.cluster.autoscaling import Autoscaling
from gaia.mcp.cluster.bound_calls import BoundCalls
from gaia.mcp.cluster.cluster_loop import cluster_loop
from gaia.mcp.cluster.loop_server import LoopServer
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.placed_server import PlacedServer
from gaia.mcp.cluster.replica_calls import ReplicaCalls
from gaia.mcp.cluster.replica_definitions import ReplicaDefinitions
from gaia.mcp.cluster.replica_hooks import ReplicaHooks
from gaia.mcp.cluster.replicated_status import ReplicatedCondition, joint_state
from gaia.mcp.config.placement import Replicas
from gaia.mcp.supervision.events import Event, GaveUp, ReplicaChanged, Restarted, ServerState, StateChanged
from gaia.runtime.clock import Clock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
"""At how busy the replicas are."""
_ALL_LOST = "all of its replicas were lost"
_SETTLED = (ServerState.READY, ServerState.EXITED, ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION)


class ReplicatedServer(LoopServer):
    """Several replicas at a time. Implements `ServerControl`; public methods are for any thread."""

    call_queue: PlacedCalls
    condition: ReplicatedCondition

    def __init__(self, context: PlacedContext, clock: Clock) -> None:
        calls = PlacedCalls(
            context.name,
            context.max_pending,
            context.placement.max_pending,
            cluster_loop,
            context.hooks,
            lambda incarnation, failure: self._loop.post(lambda: self._host_lost(incarnation, failure)),
        )
        super().__init__(context, calls)
        self.condition = ReplicatedCondition(context.name, calls)
        self._clock = clock
        # Below is what the loop's thread alone changes.
        self._replicas: dict[int, PlacedServer] = {}
        """By their numbers. Those that finish their calls before they are removed are not among them."""
        self._leaving: set[PlacedServer] = set()
        self._last_number = 0
        self._have_settled: set[int] = set()
        """The replicas whose first start has succeeded or failed."""
        self._definitions = ReplicaDefinitions()
        self._asked_again: set[int] = set()
        """The replicas that were asked for their tools because those of another one have changed."""
        self._down_since: float | None = None
        replicas = context.placement.replicas
        self._autoscaling = Autoscaling(replicas) if isinstance(replicas, Replicas) else None
        self._fewest = replicas.min if isinstance(replicas, Replicas) else replicas

    def pin(self) -> BoundCalls:
        gate = self.call_queue.bind()
        there = (one.placement for one in self.condition.replicas.values() if one.has(gate.incarnation))
        return BoundCalls(self.call_queue, gate, next(there, None))

    def wake(self) -> None:
        """Start the servers that are at rest, as calls would."""
        for one in self.condition.replicas.values():
            one.wake()

    def replace_now(self, drain: float) -> bool:
        """Have fresh processes take the place of all that are ready, one after the other."""
        ready = [one for one in self.condition.replicas.values() if one.state is ServerState.READY]
        replaced = [one.replace_now(drain) for one in ready]
        return bool(ready) and all(replaced)

    def subscriptions_changed(self) -> None:
        for one in self.condition.replicas.values():
            one.subscriptions_changed()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        for one in self.condition.replicas.values():
            one.notify(method, params)

    # The thread of the loop. Everything below runs on it.

    def _begin(self, keep_trying: bool) -> None:
        """With `keep_trying`, or once one is ready, each is placed and started as soon as that is possible."""
        self.condition.keep_trying = keep_trying
        self._move_to(ServerState.STARTING)
        for _ in range(self._fewest):
            self._add()
        if self._autoscaling is not None:
            self._look()

    def _add(self) -> None:
        self._last_number = number = self._last_number + 1
        hooks = ReplicaHooks(self, number, self._context.hooks)
        context = msgspec.structs.replace(self._context, hooks=hooks, replica=number)
        replica = PlacedServer(context, ReplicaCalls(self.call_queue), lambda: self._replica_ended(number, replica))
        self._replicas[number] = replica
        self.condition.replicas = dict(self._replicas)
        # The server as a whole decides whether it goes on when all have failed.
        replica.begin(keep_trying=True)

    def _remove(self, number: int) -> None:
        replica = self._replicas.pop(number)
        self._leaving.add(replica)
        self._definitions.removed(number)
        self._asked_again.discard(number)
        self.condition.starts_of_removed += replica.condition.generation
        self.condition.replicas = dict(self._replicas)
        replica.request_stop(self._context.drain_timeout)

    def _replica_ended(self, number: int, replica: PlacedServer) -> None:
        self._leaving.discard(replica)
        self._replicas.pop(number, None)
        if self._closing is not None and not self._replicas and not self._leaving:
            self._ended()

    def _host_lost(self, incarnation: str, failure: BaseException) -> None:
        for one in (*self._replicas.values(), *self._leaving):
            one.host_lost(incarnation, failure)

    # What the replicas tell.

    def changed(self, number: int, event: StateChanged) -> None:
        """A replica has another state than before."""
        replica = self._replicas.get(number)
        hooks = self._context.hooks
        if replica is None:
            if event.new is ServerState.CLOSED:
                hooks.happened(ReplicaChanged(self.name, number, event.old, event.new, reason=event.reason))
            return
        node = replica.condition.node
        hooks.happened(ReplicaChanged(self.name, number, event.old, event.new, node, event.reason))
        if event.new in _SETTLED:
            self._have_settled.add(number)
        self.condition.last_error = replica.condition.last_error or self.condition.last_error
        if self._closing is None:
            self._update(event.reason)

    def _update(self, reason: str | None) -> None:
        condition, replicas = self.condition, self._replicas
        state = joint_state([one.state for one in replicas.values()], ever_ready=condition.ever_ready)
        is_settled = state in (ServerState.READY, ServerState.EXITED)
        if state is ServerState.READY:
            self._is_ready()
        elif not condition.ever_ready and not is_settled and replicas.keys() <= self._have_settled:
            is_settled = True
            # Without a cluster, or with a configuration that cannot be used, nothing is tried again.
            condition.keep_trying &= any(one.condition.keep_trying for one in replicas.values())
            if not condition.keep_trying:
                state = ServerState.FAILED
        if self.state is ServerState.READY and state in (ServerState.RESTARTING, ServerState.FAILED):
            self._down_since = time.monotonic()
        if state is ServerState.FAILED:
            reason = condition.last_error
        self._move_to(state, reason)
        if is_settled:
            self._settled.open()
        self._compare()

    def _is_ready(self) -> None:
        self.condition.ever_ready = self.condition.keep_trying = True
        since, self._down_since = self._down_since, None
        if since is not None:
            self.condition.restarts += 1
            downtime = time.monotonic() - since
            self._context.hooks.happened(
                Restarted(self.name, self.condition.generation, downtime=downtime, reason=_ALL_LOST)
            )

    def listed(self, number: int, definitions: list[Any]) -> None:
        """A replica has listed its tools."""
        if number not in self._replicas or self._closing is not None:
            return
        if self._definitions.listed(number, definitions):
            self._go_by(definitions)
            if number not in self._asked_again:
                self._ask_others()
        self._asked_again.discard(number)
        self._compare()

    def _ask_others(self) -> None:
        """Have the tools of the other replicas listed, too. What comes of that asks for no more listings."""
        for number, one in self._replicas.items():
            if one.state is ServerState.READY and self._definitions.differing(number):
                self._asked_again.add(number)
                one.relist()

    def _go_by(self, definitions: list[Any]) -> None:
        hooks = self._context.hooks
        hooks.tools_listed(definitions, hooks.listing_begins())

    def _compare(self) -> None:
        """Send no call to a replica whose definition of the tool is another one than the client goes by."""
        ready = [number for number, one in self._replicas.items() if one.state is ServerState.READY]
        definitions = self._definitions.needed_from(ready)
        if definitions is not None:
            self._go_by(definitions)
        for number, one in self._replicas.items():
            calls = one.call_queue
            assert isinstance(calls, ReplicaCalls), "it was made so"
            calls.differ(self._definitions.differing(number))
        self.call_queue.send_waiting()

    def happened(self, event: Event) -> None:
        """Something else has happened to a replica."""
        if isinstance(event, Restarted):
            if event.downtime > 0:
                # The server as a whole may have been ready all the time.
                return
            event = msgspec.structs.replace(event, generation=self.condition.generation)
        if isinstance(event, GaveUp) and self.state is ServerState.READY:
            return
        self._context.hooks.happened(event)

    # Autoscaling.

    def _look(self) -> None:
        """Add or remove replicas, if there have been too few or too many for some time."""
        autoscaling = self._autoscaling
        if self._closing is not None or autoscaling is None:
            return
        under_way = self.in_flight + self.queued
        wanted = autoscaling.wanted(under_way, len(self._replicas), self._clock.monotonic())
        if wanted != len(self._replicas):
            logger.info("replicas_changed", server=self.name, replicas=wanted, before=len(self._replicas))
        while len(self._replicas) < wanted:
            self._add()
        while len(self._replicas) > wanted:
            self._remove(self._most_idle())
        self._loop.alarm(_SECONDS_BETWEEN_LOOKS, self._look)

    def _most_idle(self) -> int:
        """Rather one that is not ready; of several, the youngest."""

        def use_of(number: int) -> tuple[bool, int, int]:
            one = self._replicas[number]
            return one.state is ServerState.READY, one.in_flight, -number

        return min(self._replicas, key=use_of)

    # The end.

    def _close(self, reason: str, drain: float) -> None:
        is_first = self._closing is None
        self._closing = self._closing or reason
        if is_first or self.state is ServerState.FAILED:
            self._move_to(ServerState.CLOSED, reason, finish=drain > 0)
            self._settled.open()
        if not self._all_done.is_open:
            self._end_hosts(reason, drain)

    def _end_hosts(self, reason: str, drain: float) -> None:
        self._closing = self._closing or reason
        for one in (*self._replicas.values(), *self._leaving):
            one.request_stop(drain)
        if not self._replicas and not self._leaving:
            self._ended()

    def _ended(self) -> None:
        if self.state is ServerState.CLOSED:
            self.call_queue.end_flights()
        super()._ended()
