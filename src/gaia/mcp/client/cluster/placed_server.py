"""The driver's side of a placed server: what a supervisor is for a server of this machine, without a thread of its own.

The host supervises the server. Here it is decided where calls go: to the host that has been greeted last, once its
server is ready. All that happens to the hosts comes to the one thread of `ClusterLoop`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from gaia import log
from gaia.exception_text import exception_text
from gaia.locks import Latch
from gaia.log import get_logger
from gaia.mcp.client.cluster.bound_calls import BoundCalls
from gaia.mcp.client.cluster.cluster_loop import Alarm, cluster_loop
from gaia.mcp.client.cluster.lease import HostClock
from gaia.mcp.client.cluster.link import Engine, HostGone, HostLink, OnAnswer
from gaia.mcp.client.cluster.placed_calls import Gate, PlacedCalls
from gaia.mcp.client.cluster.placed_metrics import count_loss, count_return
from gaia.mcp.client.cluster.placed_status import PlacedCondition
from gaia.mcp.client.cluster.placement import Placement
from gaia.mcp.client.cluster.replica_calls import ReplicaCalls
from gaia.mcp.client.cluster.running_servers import running
from gaia.mcp.client.cluster.wire import (
    Answer,
    AskedInput,
    EventHappened,
    Greeting,
    HostEvent,
    HostSettings,
    ListingBegan,
    Logged,
    Progressed,
    StateReached,
    ToolsListed,
    ToolsRemembered,
    Withdrawn,
    decode_events,
    decode_greeting,
    encode,
)
from gaia.mcp.client.observation.request_spans import Observer
from gaia.mcp.client.protocol.messages import Refusal, Request
from gaia.mcp.client.supervision import events
from gaia.mcp.client.supervision.context import Listing, SupervisionHooks
from gaia.mcp.client.supervision.event_loop import Waiting
from gaia.mcp.client.supervision.events import Event, Restarted, ServerState, StateChanged
from gaia.mcp.client.supervision.server_requests import ServerRequest, ServerRequests
from gaia.mcp.client.supervision.status import PlacementStatus
from gaia.mcp.errors import MCPError
from gaia.mcp.redaction import Redactor
from gaia.telemetry import metrics

__all__ = ["DISCONNECTED", "DROPPED", "STOP_SECONDS", "PlacedContext", "PlacedServer"]

logger = get_logger(__name__)

_STOP_SECONDS = 30.0
"""That a host has to stop its server, before it is killed."""
_KILL_SECONDS = 10.0
"""That the engine has to end a host, before it is left alone."""
STOP_SECONDS = _STOP_SECONDS + 2 * _KILL_SECONDS
"""Within which nothing is left of a server without a drain."""
_ATTEMPTS, _ATTEMPT_SECONDS = 20, 0.2
_LOOK_SECONDS = 0.02
_MAX_LOOK_SECONDS = 1.0
_REPLACE_SECONDS = 120.0

DISCONNECTED = "it was disconnected"
DROPPED = "its client was dropped"


class PlacedContext(msgspec.Struct, frozen=True, kw_only=True):
    """Made once by a client, for all placed servers that it has one after the other. Durations in seconds."""

    name: str
    placement: Placement
    engine: Callable[[], Engine]
    settings: Callable[[], HostSettings]
    """Asked at each start: variables are filled in then. Raises ConfigError."""
    timeout: float
    """That a host and its server have to get ready."""
    drain_timeout: float = 30.0
    """That a process whose place was taken has to finish its calls."""
    is_lazy: bool = False
    """Whether its process is started by its first use."""
    max_pending: int
    hooks: SupervisionHooks
    server_requests: ServerRequests
    observer: Observer


class PlacedServer:
    """Lives once, from `start` to `stop`. Implements `ServerControl`; public methods are for any thread."""

    def __init__(
        self,
        context: PlacedContext,
        calls: ReplicaCalls | None = None,
        on_ended: Callable[[], object] = lambda: None,
    ) -> None:
        """A replica has its part of the `calls` of its server.

        `on_ended` is called, on the loop's thread, when nothing is left of it.
        """
        self.name = context.name
        self.is_forked = False
        self._context = context
        self._loop = cluster_loop
        self._is_replica = calls is not None
        self._on_ended = on_ended
        self.call_queue: PlacedCalls | ReplicaCalls
        if calls is not None:
            self.call_queue = calls
        else:
            self.call_queue = PlacedCalls(
                context.name,
                context.max_pending,
                context.placement.max_pending,
                cluster_loop,
                context.hooks,
                lambda incarnation, failure: self._loop.post(lambda: self.host_lost(incarnation, failure)),
            )
        self.next_id = self.call_queue.next_id
        self.condition = PlacedCondition(context.name, self.call_queue)
        self._settled = Latch()
        """Opened when the first start has succeeded or failed."""
        self._all_done = Latch()
        """Opened when nothing of it is left."""
        self._was_started = False
        # Below is what the loop's thread alone changes.
        self._closing: str | None = None
        self._user = uuid.uuid4().hex
        """By which hosts know this client, among others that may use the same server."""
        self._left_attempts = _ATTEMPTS
        """To find or start a shared host, which others may be ending."""
        self._leaving: str | None = None
        """The incarnation that is not needed any more."""
        self._is_draining = False
        """The host finishes its calls, and is stopped then."""
        self._is_starting = False
        """A thread for steps starts the host."""
        self._link: HostLink | None = None
        self._incarnation: str | None = None
        """Of the host that was greeted last, while it is there."""
        self._acknowledged = 0
        self._host_clock = HostClock()
        self._polled_at = 0.0
        """When this host was asked for events last."""
        self._listener: Alarm | None = None
        """When to look whether it has answered."""
        self._is_silent = False
        """It has not answered that within its lease."""
        self._host_state: StateReached | None = None
        """What this host has told last of its server."""
        self._down_since: float | None = None
        self._deadline: Alarm | None = None
        """When a host that is not there yet is reported."""
        self._listings: dict[int, Listing] = {}
        self._listing = 0
        """The number of the last listing that was taken over from this host."""
        self._questions: dict[int, ServerRequest] = {}
        self._release: Callable[[], object] = lambda: None

    @property
    def state(self) -> ServerState:
        return self.call_queue.state

    @property
    def queued(self) -> int:
        return len(self.call_queue)

    @property
    def in_flight(self) -> int:
        return self.call_queue.in_flight

    # What a session calls.

    def start(self, *, keep_trying: bool = False) -> bool:
        """Have the server placed and started, and wait until it is ready or has failed; True if it is ready.

        With `keep_trying` it is placed and started as soon as that is possible, until `stop`.
        """
        running.add(self)
        metrics.observed.add(self)
        self.begin(keep_trying=keep_trying)
        self._settled.wait()
        if self.state is ServerState.FAILED and not self.condition.keep_trying:
            # As a supervisor that has failed: nothing is left of it but its state.
            self._loop.post(lambda: self._end_host(None))
            self._all_done.wait(_STOP_SECONDS + _KILL_SECONDS)
            self._loop.wait_idle()
        log.flush()
        return self.state is ServerState.READY or (self.state is ServerState.EXITED and self._context.is_lazy)

    def begin(self, *, keep_trying: bool) -> None:
        """Begin what `start` does, without waiting for it."""
        self._was_started = True
        self.condition.keep_trying = keep_trying
        self._loop.hold(self)
        self._loop.post(self._begin)

    def stop(self, drain: float = 0.0) -> None:
        """Stop the server, and return when nothing of it is left, on whichever node it was.

        A server that is ready has `drain` seconds to finish its calls, while new ones are refused.
        """
        if not self._was_started or self.is_forked:
            return
        self.request_stop(drain)
        if not self._all_done.wait(STOP_SECONDS + drain):
            logger.error("supervisor_stuck", server=self.name)
            return
        self._loop.wait_idle()
        log.flush()

    def request_stop(self, drain: float = 0.0) -> None:
        self._loop.post(lambda: self._close(DISCONNECTED, drain))

    def bind(self) -> BoundCalls:
        """A way to the server that does not outlive its present process. Raises NotConnected or ServerUnavailable."""
        assert isinstance(self.call_queue, PlacedCalls), "it is no replica"
        return BoundCalls(self.call_queue, self.call_queue.bind(), self.placement)

    @property
    def placement(self) -> PlacementStatus | None:
        """Where it runs; None while it has no place."""
        return self.condition.placement

    def has(self, incarnation: str) -> bool:
        """Whether this is its present host."""
        return self._incarnation == incarnation

    def relist(self) -> None:
        """Have the server asked for its tools again."""
        link, incarnation = self._link, self._incarnation
        if link is not None and incarnation is not None:
            link.tell("relist", incarnation)

    def wake(self) -> None:
        """Start a server that is at rest, as a call would."""
        link, incarnation = self._link, self._incarnation
        if link is not None and incarnation is not None:
            link.tell("wake", incarnation)

    def abandon(self, release: Callable[[], object]) -> bool:
        if self.is_forked or not self._was_started or self._all_done.is_open:
            return False
        self._loop.post(lambda: self._abandoned(release))
        return self._closing is None

    def _abandoned(self, release: Callable[[], object]) -> None:
        self._release = release
        self._close(DROPPED)

    def after_fork(self) -> None:
        self.is_forked = True
        self.call_queue.after_fork()

    def replace_now(self, drain: float) -> bool:  # noqa: ARG002 - the host knows it
        """Have a fresh process take the place of the server on its node."""
        link, incarnation = self._link, self._incarnation
        if link is None or incarnation is None:
            return False
        answers: list[Any] = []
        is_known = Latch()

        def answered(answer: Any, _: BaseException | None) -> None:
            answers.append(answer)
            is_known.open()

        link.tell("replace", incarnation, on_answer=answered)
        is_known.wait(_REPLACE_SECONDS)
        return answers == [True]

    def subscriptions_changed(self) -> None:
        link, incarnation, wanted = self._link, self._incarnation, self._context.hooks.subscriptions
        if link is not None and incarnation is not None:
            link.tell("subscribe", incarnation, wanted.resources, wanted.log_level)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        link, incarnation = self._link, self._incarnation
        if link is not None and incarnation is not None and self.state is ServerState.READY:
            link.tell("notify", incarnation, method, msgspec.json.encode(params))

    def watch(self, waiting: Waiting) -> None:
        """Enforce a deadline that no thread waits for."""
        self.call_queue.watch(waiting)

    # The thread of the loop. Everything below runs on it.

    def _begin(self) -> None:
        if self._closing is not None:
            return
        self._move_to(ServerState.STARTING)
        self._expect_host()
        self._start_host()

    def _start_host(self) -> None:
        if self._closing is not None:
            return
        self._is_starting = True

        def started() -> None:
            try:
                settings = self._context.settings()
                link = self._context.engine().start(self.name, self._context.placement)
            except Exception as error:  # noqa: BLE001 - of ours, of Ray and of what it loads
                reason = error.message if isinstance(error, MCPError) else exception_text(error)
                self._loop.post(lambda: self._not_started(reason))
            else:
                self._loop.post(lambda: self._started(link, settings))

        self._loop.steps.submit(started, keep=True)

    def _not_started(self, reason: str) -> None:
        self._is_starting = False
        if self._closing is not None:
            self._ended()
            return
        # Without a cluster, or with a configuration that cannot be used, nothing is tried again.
        self.condition.keep_trying = False
        self._fail(reason)

    def _started(self, link: HostLink, settings: HostSettings) -> None:
        self._is_starting = False
        self._link = link
        if self._closing is not None:
            self._end_host(self._closing)
            return
        self._greet(settings)

    def _greet(self, settings: HostSettings) -> None:
        assert self._link is not None, "it was started"
        self._context.observer.redact = Redactor(settings.launch.secrets)
        settings = msgspec.structs.replace(settings, keep_trying=self.condition.keep_trying, user=self._user)
        self._link.greet(
            encode(settings), lambda answer, failure: self._received(lambda now: self._greeted(answer, failure, now))
        )

    def _received(self, task: Callable[[float], object]) -> None:
        """On a thread of the engine: have the loop's thread run `task`, with the time of this moment."""
        now = time.monotonic()
        self._loop.post(lambda: task(now))

    def _expect_host(self) -> None:
        """Report it if there is no host, or no server on it, in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.alarm(self._context.timeout, self._not_in_time)

    def _not_in_time(self) -> None:
        if self._closing is not None or self.state not in (ServerState.STARTING, ServerState.RESTARTING):
            return
        if self._incarnation is not None and self.condition.ever_ready and not self._is_silent:
            # The host restarts its server, by the policy.
            return
        link, host_is_there, silence = self._link, self._incarnation is not None, self._silence

        def look() -> None:
            if silence is not None:
                reason = silence
            elif host_is_there:
                reason = "its host is there, and the server was not ready in time"
            elif link is None:
                reason = "the Ray cluster was not joined in time"
            else:
                try:
                    reason = link.why_not_placed()
                except Exception as error:  # noqa: BLE001 - of the engine
                    reason = exception_text(error)
            self._loop.post(lambda: self._fail_if_absent(reason))

        self._loop.steps.submit(look, keep=True)

    def _fail_if_absent(self, reason: str) -> None:
        if self._closing is None and self.state in (ServerState.STARTING, ServerState.RESTARTING):
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self.condition.last_error = reason
        logger.error("server_not_placed", server=self.name, error=reason)
        self._move_to(ServerState.FAILED, reason)
        self._settled.open()

    def _greeted(self, answer: Any, failure: BaseException | None, now: float) -> None:
        if self._closing is not None:
            return
        if isinstance(failure, HostGone) and self._is_shared and self._left_attempts:
            # Others have just ended it.
            self._left_attempts -= 1
            self._link = None
            self._loop.alarm(_ATTEMPT_SECONDS, self._start_host)
            return
        if isinstance(failure, HostGone):
            self.condition.keep_trying = False
            self._fail(f"its actor is gone: {failure}")
            return
        if failure is not None:
            # Ray would repeat it too, but in steps of a second.
            self._greet_soon()
            return
        greeting: Greeting = decode_greeting(answer)
        if greeting.problem is not None:
            self.condition.keep_trying = False
            self._fail(greeting.problem)
            return
        if greeting.is_over:
            self._greet_soon()
            return
        if greeting.incarnation != self.condition.incarnation:
            self._host_clock = HostClock()
            self._acknowledged = 0
            self._host_state = None
            self._listings.clear()
            self._listing = 0
            self.condition.host_greeted(greeting, self._link)
        self._incarnation, self._is_silent = greeting.incarnation, False
        self._left_attempts = _ATTEMPTS
        self._host_clock.heard(greeting.clock, now)
        logger.debug("host_greeted", server=self.name, node=greeting.node, pid=greeting.pid)
        self._poll()
        self._listen(greeting.incarnation)
        if self._host_state is not None:
            # It was only out of reach.
            self._reached(self._host_state)

    def _poll(self) -> None:
        link, incarnation = self._link, self._incarnation
        if link is None or incarnation is None or self._is_ending:
            return
        self._polled_at = time.monotonic()
        link.poll(
            incarnation,
            self._acknowledged,
            lambda answer, failure: self._received(lambda now: self._polled(incarnation, answer, failure, now)),
        )

    def _listen(self, incarnation: str) -> None:
        """Send no calls to a host that does not answer in time: it has stopped its server, or is about to."""
        if incarnation != self._incarnation or self._is_silent or self._is_ending:
            return
        left = self._polled_at + self._context.placement.lease - time.monotonic()
        if left > 0:
            if self._listener is not None:
                self._listener.cancel()
            self._listener = self._loop.alarm(left, lambda: self._listen(incarnation))
            return
        self._is_silent = True
        self.call_queue.close()
        self.condition.last_error = self._silence
        logger.warning("host_silent", server=self.name, node=self.condition.node)
        if self._down_since is None:
            self._down_since = time.monotonic()
        if self.condition.ever_ready:
            self._move_to(ServerState.RESTARTING, self._silence)
        self._expect_host()

    @property
    def _silence(self) -> str | None:
        """What is known of a host that does not answer; None if it does."""
        if not self._is_silent:
            return None
        return f"its host on node {self.condition.node} has not answered for {self._context.placement.lease:g} s"

    def _polled(self, incarnation: str, answer: Any, failure: BaseException | None, now: float) -> None:
        if incarnation != self._incarnation or self._is_ending:
            return
        if failure is not None or not answer:
            self.host_lost(incarnation, failure or RuntimeError("another process took its place"))
            return
        sent = decode_events(answer)
        self._host_clock.heard(sent.clock, now)
        was_silent, self._is_silent = self._is_silent, False
        if was_silent and self._host_state is not None:
            self._reached(self._host_state)
        try:
            for number, event in enumerate(sent.events, sent.first):
                if number > self._acknowledged:
                    self._acknowledged = number
                    self._happened(incarnation, event)
        finally:
            self._poll()
            if was_silent:
                self._listen(incarnation)

    def host_lost(self, incarnation: str, failure: BaseException) -> None:
        """The engine says that a host is lost; on the loop's thread. Does nothing if it is not the present one."""
        if incarnation != self._incarnation or self._closing is not None:
            return
        self._incarnation, self._is_silent = None, False
        self.call_queue.close()
        self.call_queue.deliver_answers(incarnation)
        reason = f"its host on node {self.condition.node} was lost: {failure}"
        self.condition.host_lost(reason)
        if self._down_since is None:
            self._down_since = time.monotonic()
        logger.warning("host_lost", server=self.name, node=self.condition.node, reason=str(failure))
        count_loss(self.name, "host_lost")
        for question in list(self._questions.values()):
            question.withdraw()
        self._questions.clear()
        if isinstance(failure, HostGone):
            self.condition.keep_trying = False
            self._fail(reason)
            return
        if self.condition.ever_ready:
            self._move_to(ServerState.RESTARTING, reason)
        self._expect_host()
        self._renew()

    def _greet_soon(self) -> None:
        """Greet again: the longer there has been no host, the later."""
        away = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        self._loop.alarm(min(max(_LOOK_SECONDS, away / 20), _MAX_LOOK_SECONDS), self._renew)

    def _renew(self) -> None:
        """Greet the next host, or this one again."""
        if self._closing is not None:
            return

        def renewed() -> None:
            try:
                settings = self._context.settings()
            except MCPError as error:
                message = error.message
                self._loop.post(lambda: self._fail(message))
            else:
                self._loop.post(lambda: self._greet(settings))

        self._loop.steps.submit(renewed, keep=True)

    # What a host tells.

    def _happened(self, incarnation: str, event: HostEvent) -> None:
        link = self._link
        assert link is not None, "there is a host"
        match event:
            case Progressed():
                self.call_queue.progressed(event.call, event.params, time.monotonic())
            case Logged():
                self.call_queue.logged(event.call, event.params)
            case StateReached():
                self._host_state = event
                self._reached(event)
            case ListingBegan() | ToolsListed() | ToolsRemembered():
                self._learn_tools(incarnation, event)
            case AskedInput():
                self._ask(link, incarnation, event)
            case Withdrawn():
                question = self._questions.pop(event.number, None)
                if question is not None:
                    question.withdraw()
            case EventHappened():
                self._tell(event)

    def _learn_tools(self, incarnation: str, event: ListingBegan | ToolsListed | ToolsRemembered) -> None:
        hooks = self._context.hooks
        if isinstance(event, ListingBegan):
            self._listings[event.number] = hooks.listing_begins()
            return
        if isinstance(event, ToolsRemembered):
            hooks.tools_remembered(event.definitions)
            return
        listing = self._listings.pop(event.number, None)
        if event.profile is not None:
            self.condition.profile = event.profile.restored()
        if listing is not None:
            hooks.tools_listed(event.definitions, listing)
        self._listing = max(self._listing, event.number)
        self.call_queue.listed(incarnation, self._listing)

    def _reached(self, event: StateReached) -> None:
        state = event.state
        if state is ServerState.CLOSED or self._incarnation is None or self._closing is not None:
            return
        if state is ServerState.STARTING and self.condition.ever_ready:
            state = ServerState.RESTARTING
        elif state is ServerState.FAILED:
            # What is missing there may be on other nodes.
            where = f"on node {self.condition.node}: "
            event = msgspec.structs.replace(
                event,
                reason=event.reason and where + event.reason,
                last_error=event.last_error and where + event.last_error,
            )
        self.condition.host_reached(event)
        if state is ServerState.READY:
            self._ready(event)
            return
        # A server that has exited is started again by a call, which the host has to see.
        if state is ServerState.EXITED and self._link is not None:
            self._move_to(state, event.reason)
            self._open(event.generation)
            return
        self.call_queue.close()
        if self.state is ServerState.READY and state in (ServerState.RESTARTING, ServerState.FAILED):
            count_loss(self.name, "lost_on_node")
            logger.warning("server_lost", server=self.name, reason=event.reason, restart_in=event.retry_in or 0.0)
        self._move_to(state, event.reason)
        if state in (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION):
            self._settled.open()

    def _ready(self, event: StateReached) -> None:
        assert self._link is not None, "there is a host"
        assert self._incarnation is not None, "it was greeted"
        if event.profile is not None:
            self._context.observer.protocol_version = event.profile.protocol_version
        since, self._down_since = self._down_since, None
        self.condition.ready(after_loss=since is not None)
        if self.state is not ServerState.READY:
            condition = self.condition
            logger.info("server_placed", server=self.name, node=condition.node, generation=condition.generation)
        self._move_to(ServerState.READY, event.reason)
        if since is not None:
            downtime = time.monotonic() - since
            told = Restarted(self.name, self.condition.generation, downtime=downtime, reason="its host was lost")
            count_return(told)
            self._context.hooks.happened(told)
        self._open(event.generation)

    def _open(self, start: int) -> None:
        assert self._link is not None, "there is a host"
        assert self._incarnation is not None, "it was greeted"
        self.call_queue.open(Gate(self._link, self._incarnation, self._host_clock, start, self._listing))
        self._settled.open()

    def _ask(self, link: HostLink, incarnation: str, event: AskedInput) -> None:
        def answered(result: dict[str, Any] | None, refusal: Refusal | None) -> None:
            if result is None and refusal is None:
                return
            code, message = (None, "") if refusal is None else (refusal.code, refusal.message)
            link.tell("answer", incarnation, encode(Answer(event.number, result, code, message)))

        requests = self._context.server_requests
        if not requests.features.offers(event.method):
            return
        if requests.features.relayed:
            request = Request(event.number, event.method, event.params)
            question = requests.relay(self.call_queue.relayed(), request, answered)
        else:
            question = requests.ask(event.method, event.params, answered)
        if not question.ended:
            self._questions = {number: one for number, one in self._questions.items() if not one.ended}
            self._questions[event.number] = question
            self.watch(question)

    def _tell(self, event: EventHappened) -> None:
        kind = getattr(events, event.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            return
        told = msgspec.convert({"server": self.name, **event.fields}, kind)
        if isinstance(told, Restarted):
            if self._down_since is not None:
                # It is told when this host's server is ready.
                return
            told = msgspec.structs.replace(told, generation=self.condition.generation)
            count_return(told)
        self._context.hooks.happened(told)

    def _move_to(self, new: ServerState, reason: str | None = None, *, finish: bool = False) -> None:
        old = self.call_queue.move_to(new, reason, finish=finish)
        if old is not new:
            self._context.hooks.happened(StateChanged(self.name, old, new, self.condition.generation, reason))

    # The end.

    @property
    def _is_shared(self) -> bool:
        """Whether other programs may use the same host."""
        return self._context.placement.lifetime == "detached"

    @property
    def _is_ending(self) -> bool:
        """Whether nothing matters any more of what the host tells."""
        return self._closing is not None and not self._is_draining

    def _close(self, reason: str, drain: float = 0.0) -> None:
        if self._closing is not None and self.state is ServerState.CLOSED:
            if self._is_draining and drain <= 0 and self._link is not None:
                self._is_draining = False
                self.call_queue.end_flights()
                self._tell_end(self._link, 0.0, lambda *_: None)
            return
        was_ended = self._all_done.is_open
        self._closing = reason
        self._is_draining = drain > 0 and self.state is ServerState.READY and self._incarnation is not None
        self._move_to(ServerState.CLOSED, reason, finish=self._is_draining)
        self._settled.open()
        if not was_ended:
            self._end_host(reason, drain if self._is_draining else 0.0)

    def _end_host(self, reason: str | None, drain: float = 0.0) -> None:
        self._closing = reason or "it could not be started"
        if self._deadline is not None:
            self._deadline.cancel()
        if self._is_starting:
            return
        link, incarnation = self._link, self._incarnation
        self._leaving = incarnation
        if not self._is_draining:
            self._incarnation = None
        if link is None or (incarnation is None and self._is_shared):
            # A shared host that was not greeted ends by itself, unless others use it.
            self._ended()
        elif incarnation is None:
            self._kill()
        else:
            has_ended = False

            def end_once(is_needed: bool) -> None:
                nonlocal has_ended
                if not has_ended:
                    has_ended = True
                    self._is_draining, self._incarnation = False, None
                    self.call_queue.end_flights()
                    if is_needed:
                        self._ended()
                    else:
                        self._kill()

            def answered(is_last: Any, failure: BaseException | None) -> None:
                # Others may be using a shared host, unless it says that there are none.
                is_needed = self._is_shared and is_last is not True and not isinstance(failure, HostGone)
                self._loop.post(lambda: end_once(is_needed))

            self._tell_end(link, drain, answered)
            self._loop.alarm(_STOP_SECONDS + drain, lambda: end_once(self._is_shared))

    def _tell_end(self, link: HostLink, drain: float, on_answer: OnAnswer) -> None:
        if self._is_shared:
            link.tell("leave", self._leaving, drain, on_answer=on_answer)
        else:
            link.tell("stop", drain, on_answer=on_answer)

    def _kill(self) -> None:
        link = self._link
        assert link is not None, "there is something to kill"
        link.kill()
        deadline = time.monotonic() + _KILL_SECONDS

        def look() -> None:
            if self._all_done.is_open:
                return
            # It does nothing in a host that is still there.
            link.tell("is_there", on_answer=lambda _, failure: self._loop.post(lambda: looked(failure)))

        def looked(failure: BaseException | None) -> None:
            if isinstance(failure, HostGone) or time.monotonic() > deadline:
                self._ended()
            else:
                self._loop.alarm(_LOOK_SECONDS, look)

        self._loop.alarm(_KILL_SECONDS, self._ended)
        look()

    def _ended(self) -> None:
        if self._all_done.is_open:
            return
        self._link = None
        running.discard(self)
        if not self._is_replica:
            metrics.observed.discard(self)
        try:
            self._release()
        finally:
            self._loop.let_go(self)
            self._all_done.open()
            self._on_ended()
