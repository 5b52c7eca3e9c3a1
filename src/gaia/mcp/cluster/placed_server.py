"""The driver's side of a placed server: what a supervisor is for a server of this machine, without a thread of its own.

The host supervises the server. Here it is decided where calls go: to the host that has been greeted last, once its
server is ready. All that happens to the hosts comes to the one thread of `ClusterLoop`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.cluster.bound_calls import BoundCalls
from gaia.mcp.cluster.cluster_loop import Alarm, cluster_loop
from gaia.mcp.cluster.link import ClusterLeft, HostGone, HostLink
from gaia.mcp.cluster.loop_server import LoopServer
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.placed_ending import PlacedEnding
from gaia.mcp.cluster.placed_events import PlacedEvents
from gaia.mcp.cluster.placed_greeter import PlacedGreeter
from gaia.mcp.cluster.placed_host import PlacedHost
from gaia.mcp.cluster.placed_spans import PlacedSpans
from gaia.mcp.cluster.placed_status import PlacedCondition
from gaia.mcp.cluster.replica_calls import ReplicaCalls
from gaia.mcp.cluster.wire import Greeting, HostEvent, StateReached
from gaia.mcp.supervision.events import Restarted, ServerState
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.locks import Latch
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_REPLACE_SECONDS = 120.0
_GREETING_SECONDS = 0.1
"""That the next host has to answer a greeting, before it gets another one: Ray holds one that comes while the host is
being started for up to two seconds, and fails then."""


class PlacedServer(LoopServer):
    """One host after the other. Implements `ServerControl`; public methods are for any thread."""

    condition: PlacedCondition

    def __init__(
        self,
        context: PlacedContext,
        calls: ReplicaCalls | None = None,
        on_ended: Callable[[], object] = lambda: None,
    ) -> None:
        """A replica has its part of the `calls` of its server.

        `on_ended` is called, on the loop's thread, when nothing is left of it.
        """
        own: PlacedCalls | ReplicaCalls
        if calls is not None:
            own = calls
        else:
            own = PlacedCalls(
                context.name,
                context.max_pending,
                context.placement.max_pending,
                cluster_loop,
                context.hooks,
                lambda incarnation, failure: self._loop.post(lambda: self.host_lost(incarnation, failure)),
            )
        super().__init__(context, own, on_ended)
        self.condition = PlacedCondition(context.name, own)
        # Below is what the loop's thread alone changes.
        self._spans = PlacedSpans(context)
        self._host: PlacedHost | None = None
        """The host that was greeted last, which may be lost by now."""
        self._events: PlacedEvents | None = None
        """What this host tells."""
        self._ending: PlacedEnding | None = None
        self._deadline: Alarm | None = None
        """When a host that is not there yet is reported."""
        self._greeter = PlacedGreeter(
            context, self.condition, cluster_loop, self._greeted, self._not_placed, self._gone
        )

    def pin(self) -> BoundCalls:
        assert isinstance(self.call_queue, PlacedCalls), "it is no replica"
        return BoundCalls(self.call_queue, self.call_queue.bind(), self.placement)

    @property
    def placement(self) -> PlacementStatus | None:
        """Where it runs; None while it has no place."""
        return self.condition.placement

    def has(self, incarnation: str) -> bool:
        """Whether this is its present host."""
        host = self._present
        return host is not None and host.incarnation == incarnation

    @property
    def _present(self) -> PlacedHost | None:
        """The host that was greeted last, unless it is lost or being ended."""
        host = self._host
        return host if host is not None and host.is_present else None

    def _tell(self, method: str, *arguments: object) -> None:
        host = self._present
        if host is not None:
            host.tell(method, *arguments)

    def relist(self) -> None:
        """Have the server asked for its tools again."""
        self._tell("relist")

    def wake(self) -> None:
        """Start a server that is at rest, as a call would."""
        self._tell("wake")

    def replace_now(self, drain: float) -> bool:  # noqa: ARG002 - the host knows it
        """Have a fresh process take the place of the server on its node."""
        host = self._present
        if host is None:
            return False
        answers: list[Any] = []
        is_known = Latch()

        def answered(answer: Any, _: BaseException | None) -> None:
            answers.append(answer)
            is_known.open()

        host.tell("replace", on_answer=answered)
        is_known.wait(_REPLACE_SECONDS)
        return answers == [True]

    def subscriptions_changed(self) -> None:
        wanted = self._context.hooks.subscriptions
        self._tell("subscribe", wanted.resources, wanted.log_level)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        if self.state is ServerState.READY:
            self._tell("notify", method, msgspec.json.encode(params))

    # The thread of the loop. Everything below runs on it.

    def _begin(self, keep_trying: bool) -> None:
        self.condition.keep_trying = keep_trying
        self._move_to(ServerState.STARTING)
        self._spans.requested()
        self._spans.placing()
        self._expect_host()
        self._greeter.start()

    def _expect_host(self) -> None:
        """Report it if there is no host, or no server on it, in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.alarm(self._context.start_timeout, self._not_in_time)

    def _not_in_time(self) -> None:
        if self._closing is not None or self.state not in (ServerState.STARTING, ServerState.RESTARTING):
            return
        host, link = self._present, self._greeter.link
        if host is not None and self.condition.ever_ready and not host.is_silent:
            # The host restarts its server, by the policy.
            return
        if host is not None:
            self._fail(host.silence or "its host is there, and the server was not ready in time")
        elif link is None:
            # Threads for steps may all be busy with joining the cluster.
            self._fail(self.condition.last_error or "the Ray cluster was not joined in time")
        else:
            self._loop.steps.submit(lambda: self._look_why(link), keep=True)

    def _look_why(self, link: HostLink) -> None:
        """Find out why there is no host yet; on a thread for steps."""
        try:
            reason = link.why_not_placed()
        except Exception as error:  # noqa: BLE001 - of the engine
            reason = exception_text(error)
        self._loop.post(lambda: self._fail_if_absent(reason))

    def _fail_if_absent(self, reason: str) -> None:
        if self._closing is None and self.state in (ServerState.STARTING, ServerState.RESTARTING):
            self._fail(reason)

    def _not_placed(self, reason: str) -> None:
        """There will be no host."""
        if self._closing is None:
            self.condition.keep_trying = False
            self.condition.host_follows(None)
            self._fail(reason)

    def _gone(self, reason: str) -> None:
        """A host is gone for good, or of no use: have another one started, if it is kept trying."""
        condition = self.condition
        # A shared host was ended on demand, or is used with another configuration.
        if self._context.placement.is_shared or not condition.keep_trying:
            self._not_placed(reason)
            return
        if self.state is not ServerState.RESTARTING:
            self._fail(reason)
        condition.last_error = reason
        condition.host_follows(self._greeter.start_another())

    def _fail(self, reason: str) -> None:
        self.condition.last_error = reason
        with self._spans.entered():
            logger.error("server_not_placed", server=self.name, error=reason)
        self._spans.gave_up(reason)
        self._move_to(ServerState.FAILED, reason)
        self._settled.open()

    def _greeted(self, link: HostLink, greeting: Greeting, now: float) -> None:
        host = self._host
        if host is None or host.incarnation != greeting.incarnation:
            self._host = host = PlacedHost(link, greeting, self._context.placement.lease, self._loop, self)
            self._events = PlacedEvents(self._context, self.call_queue, self.condition, self._loop, host, self._spans)
            self.condition.host_greeted(greeting, link)
            self._spans.host_greeted(greeting.node, self.condition.generation + 1)
        logger.debug("host_greeted", server=self.name, node=greeting.node, pid=greeting.pid)
        host.greeted(greeting, now)
        if host.state is not None:
            # It was only out of reach.
            self._reached(host, host.state)

    # What becomes of the host. Implements `HostWatcher`.

    def host_silent(self, host: PlacedHost) -> None:
        """Send no calls to a host that does not answer in time: it has stopped its server, or is about to."""
        if self._closing is not None:
            self.call_queue.end_flights()
            return
        self.call_queue.close()
        reason = str(host.silence)
        self.condition.host_silent(reason)
        logger.warning("host_silent", server=self.name, node=host.node)
        if self.condition.ever_ready:
            self._move_to(ServerState.RESTARTING, reason)
        self._expect_host()

    def host_answers(self, host: PlacedHost) -> None:
        if host.state is not None:
            self._reached(host, host.state)

    def host_lost(self, incarnation: str, failure: BaseException) -> None:
        """The engine says that a host is lost; on the loop's thread. Does nothing if it is not the present one."""
        host = self._present
        if host is None or host.incarnation != incarnation:
            return
        if self._closing is not None:
            self.call_queue.deliver_answers(incarnation)
            return
        host.let_go()
        self.call_queue.close()
        self.call_queue.deliver_answers(incarnation)
        reason = f"its host on node {host.node} was lost: {failure}"
        self.condition.host_silent(reason)
        if self.condition.ever_ready:
            self._move_to(ServerState.RESTARTING, reason)
        self._spans.host_lost(reason, self.condition.generation + 1, self.condition.uptime)
        # Only now: what is ready has a place, for all that look at it.
        self.condition.host_lost(reason)
        with self._spans.entered():
            logger.warning("host_lost", server=self.name, node=host.node, reason=str(failure))
        if self._events is not None:
            self._events.withdraw_questions()
        self._expect_host()
        if isinstance(failure, ClusterLeft):
            self._not_placed(reason)
        elif isinstance(failure, HostGone):
            self._gone(reason)
        else:
            self._greeter.greet_again()

    def happened(self, host: PlacedHost, event: HostEvent) -> None:
        if isinstance(event, StateReached):
            self._reached(host, event)
        elif self._events is not None:
            self._events.happened(event)

    def _reached(self, host: PlacedHost, event: StateReached) -> None:
        state = event.state
        if state is ServerState.CLOSED or self._closing is not None:
            return
        if state is ServerState.STARTING and self.condition.ever_ready:
            state = ServerState.RESTARTING
        elif state is ServerState.FAILED:
            # What is missing there may be on other nodes.
            where = f"on node {host.node}: "
            event = msgspec.structs.replace(
                event,
                reason=event.reason and where + event.reason,
                last_error=event.last_error and where + event.last_error,
            )
        uptime = self.condition.uptime
        self.condition.host_reached(event)
        if state is ServerState.READY:
            self._ready(host, event)
            return
        self._spans.reached(event, self.condition.generation + 1, uptime)
        # A server that has exited is started again by a call, which the host has to see.
        if state is ServerState.EXITED:
            self._move_to(state, event.reason)
            self.call_queue.open(host.gate(event))
            self._settled.open()
            return
        self.call_queue.close()
        if self.state is ServerState.READY and state in (ServerState.RESTARTING, ServerState.FAILED):
            with self._spans.entered():
                logger.warning("server_lost", server=self.name, reason=event.reason, restart_in=event.retry_in or 0.0)
        self._move_to(state, event.reason)
        if state in (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION):
            self._settled.open()

    def _ready(self, host: PlacedHost, event: StateReached) -> None:
        condition = self.condition
        downtime = condition.ready()
        self._spans.ready(event, downtime)
        # The calls that waited are linked to the restart.
        with self._spans.entered():
            if self.state is not ServerState.READY:
                logger.info("server_placed", server=self.name, node=host.node, generation=condition.generation)
            self._move_to(ServerState.READY, event.reason)
            if downtime is not None:
                told = Restarted(self.name, condition.generation, downtime=downtime, reason="its host was lost")
                self._context.hooks.happened(told)
            self.call_queue.open(host.gate(event))
        self._spans.admitted()
        self._settled.open()

    # The end.

    def _close(self, reason: str, drain: float) -> None:
        if self._closing is not None and self.state is ServerState.CLOSED:
            if drain <= 0:
                self.call_queue.end_flights()
            return
        self._spans.requested()
        was_ended = self._all_done.is_open
        self._closing = reason
        finish = drain > 0 and self.state is ServerState.READY and self._present is not None
        self._move_to(ServerState.CLOSED, reason, finish=finish)
        self._settled.open()
        if not was_ended:
            self._end_hosts(reason, drain if finish else 0.0)

    def _end_hosts(self, reason: str, drain: float) -> None:
        self._closing = reason
        if self._deadline is not None:
            self._deadline.cancel()
        if drain > 0:
            # A message that ends the server could overtake calls that were sent before.
            self._deadline = self._loop.alarm(drain, self.call_queue.end_flights)
            self.call_queue.when_finished(self._end_now)
        else:
            self._end_now()

    def _end_now(self) -> None:
        """No call is under way any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self.state is ServerState.CLOSED:
            self._spans.closing(self.condition.uptime)
        host = self._present
        if host is not None:
            host.let_go()
        if self._events is not None:
            self._events.withdraw_questions()
        incarnation = None if host is None else host.incarnation
        self._greeter.stop(lambda: self._end(incarnation))

    def _end(self, incarnation: str | None) -> None:
        link = self._greeter.link
        if self._ending is not None:
            return
        if link is None:
            self._ended()
            return
        self._ending = PlacedEnding(
            link,
            incarnation,
            is_shared=self._context.placement.is_shared,
            loop=self._loop,
            on_stopped=self.call_queue.end_flights,
            on_ended=self._ended,
        )
        self._ending.begin()

    def _ended(self) -> None:
        self._spans.closed()
        self._host = self._events = self._ending = self._greeter.link = None
        super()._ended()
