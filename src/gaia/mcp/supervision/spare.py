"""New processes beside a running server: the stand-by, and planned replacements without a gap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import msgspec
from opentelemetry.context import Context

from gaia.mcp.errors import CallCancelled, MCPError
from gaia.mcp.observation.lifecycle_spans import ReplacementSpans, StandbySpans
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.context import RecyclingReason, SupervisionContext
from gaia.mcp.supervision.draining import DrainingConnections
from gaia.mcp.supervision.events import Restarted
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.health import HealthCheck, hangs
from gaia.mcp.supervision.policy import Loss, OpenCircuit, RestartTracker, load_backoff
from gaia.mcp.supervision.status import ServerCore, StandbyStatus
from gaia.runtime.event_loop import Timer, run_all
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_NOT_NEEDED = "the stand-by is not needed any more"


class Spare:
    """Keeps one generation ready to take over while one is wanted. Belongs to the supervisor's thread.

    - `want` starts a spare, unless there is one. If a spare fails, dies or hangs, the server's restart policy starts it
      again; this is only a warning, never a failure of the server.
    - `take` gives it away: from then on it is a generation like any other.
    - `rest` keeps the present spare and starts no other; `end` ends it too.
    """

    def __init__(
        self,
        core: ServerCore,
        draining: DrainingConnections,
        start: Callable[[int], Generation],
        on_failed: Callable[[MCPError], None],
    ) -> None:
        """``start(number)`` starts a generation; `on_failed` is called if that fails or it is lost. Sets two timers."""
        self.generation: Generation | None = None
        self._context, self._loop, self._call_queue, self._condition = core
        self._draining = draining
        self._start = start
        self._on_failed = on_failed
        self._spans = StandbySpans(core.context.observer, core.context.executor)
        self._tracker = RestartTracker(core.context.policy, core.context.rng)
        self._wanted = False
        self._not_before = 0.0
        """A reading of the clock: the earliest time of the next start."""
        self._last_error: str | None = None

    @property
    def status(self) -> StandbyStatus | None:
        """None if there is no spare and none is wanted. For any thread."""
        generation = self.generation
        if generation is not None:
            state: Literal["starting", "ready"] = "starting" if generation.greeting is None else "ready"
            return StandbyStatus(state=state, pid=generation.pid, last_error=self._last_error)
        if not self._wanted:
            return None
        retry_in = max(0.0, self._not_before - self._context.clock.monotonic())
        return StandbyStatus(state="retrying", retry_in=retry_in, last_error=self._last_error)

    def want(self, *, at_once: bool = False) -> None:
        """Start a spare, unless there is one, and keep one until `rest` or `end`. `at_once`: without backoff."""
        self._wanted = True
        if at_once:
            self._not_before = 0.0
        if self.generation is None:
            # A timer even if it is due now: the calls that waited for the server come first.
            self._loop.timers.set(Timer.STANDBY, self._not_before, self._open)

    def reconfigured(self) -> None:
        self._tracker = RestartTracker(self._context.policy, self._context.rng)
        self._not_before = 0.0

    def delay(self, moment: float) -> None:
        self._not_before = max(self._not_before, moment)

    def rest(self) -> None:
        self._wanted = False
        self._loop.timers.cancel(Timer.STANDBY)

    def end(self) -> None:
        self.rest()
        if self.generation is not None:
            self._drop()

    def take(self) -> Generation | None:
        """Give the spare away, greeted or not yet; None if none lives."""
        generation = self.generation
        if generation is None:
            return None
        if generation.maintenance is None:
            # An exception came between its loss and its end, or between its start and its greeting.
            self._drop()
            return None
        if generation.has_ended:
            self.lost(None)
            return None
        self._tracker.note_end(self._context.clock.monotonic())
        self._loop.timers.cancel(Timer.STANDBY_HEALTH)
        generation.connection.trace_context = None
        self._spans.ended()
        self.generation = None
        return generation

    def after_fork(self) -> None:
        self.generation = None
        self._wanted = False

    def _open(self) -> None:
        if not self._wanted or self.generation is not None:
            # The timer came due together with the event that made the start unnecessary.
            return
        self._condition.starts = number = self._condition.starts + 1
        self._spans.opening(number)
        try:
            self.generation = generation = self._start(number)
        except MCPError as error:
            self._failed(error.message, error)
            return
        generation.connection.trace_context = self._spans.spawned(generation.pid)
        generation.greet()

    def greeted(self) -> None:
        generation, context = self.generation, self._context
        assert generation is not None, "only a spare that is there is greeted"
        assert generation.greeting is not None, "it was greeted"
        assert generation.run_exchange is not None, "it was greeted"
        now, number = context.clock.monotonic(), generation.connection.generation
        self._tracker.on_ready(now)
        self._spans.ended()
        generation.connection.trace_context = None
        logger.info("standby_ready", server=context.name, generation=number, pid=generation.pid)
        health = HealthCheck(
            generation.greeting.profile.era,
            generation.run_exchange,
            lambda: self._hung(generation),
            context.health_interval,
            context.health_timeout,
        )
        self._loop.timers.set(Timer.STANDBY_HEALTH, now + context.health_interval, lambda: self._check(health))
        # Import the backoff now: when the server is lost, the take-over must not wait for the import.
        load_backoff()

    def _check(self, health: HealthCheck) -> None:
        if self.generation is not None and health.run_exchange is self.generation.run_exchange:
            self._loop.timers.set(Timer.STANDBY_HEALTH, health.tick(), lambda: self._check(health))

    def _hung(self, generation: Generation) -> None:
        if generation is self.generation:
            self.lost(hangs(self._context.health_timeout), hung=True)

    def lost(self, error: MCPError | None, *, hung: bool = False) -> None:
        """End the lost spare because of `error`; None means that the process ended by itself."""
        loss = self._leave(error, hung=hung)
        reason = loss.described()
        if loss.ended_while_opening and self._context.negotiation.retry_with_initialize():
            # It exited because of the probe, see `Step.RETRY_WITH_INITIALIZE`.
            self._spans.ended()
            if self._wanted:
                self.want()
            return
        self._failed(reason, error or MCPError(reason))

    def _drop(self) -> None:
        self._spans.ended()
        self._leave(CallCancelled(_NOT_NEEDED))

    def _leave(self, error: MCPError | None, *, hung: bool = False) -> Loss:
        generation = self.generation
        assert generation is not None, "only a spare that is there can leave"
        loss = Loss(error, Ending(), was_ready=generation.greeting is not None, hung=hung)
        try:
            self._loop.timers.cancel(Timer.STANDBY_HEALTH)
            loss = msgspec.structs.replace(loss, ending=generation.lose(error))
            if isinstance(error, CallCancelled):
                self._call_queue.fail(generation.connection.close(), lambda: error)
            else:
                self._call_queue.take_back(generation.connection, loss.described())
            self._context.server_requests.lost(generation.connection)
        finally:
            self._draining.end(generation, loss)
            self.generation = None
        return loss

    def _failed(self, reason: str, error: MCPError) -> None:
        self._last_error = reason
        self._spans.failed(reason)
        now = self._context.clock.monotonic()
        decision = self._tracker.on_end(now)
        moment = decision.until if isinstance(decision, OpenCircuit) else now + decision.delay
        self.delay(moment)
        if self._wanted:
            self.want()
        self._on_failed(error)
        # If no spare is wanted any more, this was the only attempt at a replacement, which is reported elsewhere.
        if self._wanted:
            logger.warning("standby_failed", server=self._context.name, reason=reason, retry_in=moment - now)


_ON_REQUEST = ("requested", "reconfigured")

OnReplaced = Callable[[MCPError | None], None]
"""Called once, on the supervisor's thread: with None when the new process has taken over, else with the error."""


class _Replacement(NamedTuple):
    drain: float
    reason: RecyclingReason
    on_done: OnReplaced
    context: SupervisionContext | None = None

    @property
    def keeps_trying(self) -> bool:
        """Whether a failed attempt is followed by others, as for a server that has reached a limit."""
        return self.reason not in _ON_REQUEST


class Replacements:
    """Replaces one server on request. Belongs to the supervisor's thread.

    - The spare is the new process. It is started, unless there is a stand-by already.
    - Once greeted, it becomes the current generation. Its subscriptions are set up; then it gets the new calls.
    - The old process finishes its calls, see `DrainingConnections.drain`. Its end is not a loss.
    - If the new process fails, the old one goes on.
    """

    def __init__(
        self,
        core: ServerCore,
        spare: Spare,
        draining: DrainingConnections,
        make_ready: Callable[[Generation], None],
    ) -> None:
        self._context, _, self._call_queue, self._condition = core
        self._spare = spare
        self._draining = draining
        self._make_ready = make_ready
        self._wanted: _Replacement | None = None
        self._spans = ReplacementSpans(self._context.observer, self._context.executor)

    @property
    def candidate(self) -> SupervisionContext | None:
        return None if self._wanted is None else self._wanted.context

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not None

    @property
    def is_awaited(self) -> bool:
        """Whether the application has asked for the new process, and may wait for it."""
        return self._wanted is not None and not self._wanted.keeps_trying

    def ask(
        self,
        drain: float,
        on_done: OnReplaced,
        reason: RecyclingReason,
        asked_in: Context | None = None,
        context: SupervisionContext | None = None,
    ) -> None:
        """Replace the server. The old process gets `drain` seconds for its calls.

        If `reason` is "requested" or "reconfigured", there is one attempt, at once; `asked_in` is its trace. For any
        other reason, further attempts follow a failure of the new process, after a backoff. `context` is another
        configuration, for the new process and all later ones.
        """
        if self._call_queue.ready is None:
            name, state = self._context.name, self._condition.state.value
            on_done(MCPError(f"server {name!r} is {state}, and only one that is ready can be replaced"))
            return
        earlier, self._wanted = self._wanted, _Replacement(drain, reason, on_done, context)
        if earlier is None:
            self._spans.began(reason, asked_in)
        else:
            # One new process serves both requests. The application does not wait for the backoff of an earlier attempt.
            self._wanted = earlier._replace(
                reason=reason if reason in _ON_REQUEST else earlier.reason,
                on_done=lambda error: run_all(partial(earlier.on_done, error), partial(on_done, error)),
                context=context or earlier.context,
            )
        spare = self._spare.generation
        if spare is not None and context is not None and spare.context is not context:
            self._spare.end()
            spare = None
        if spare is not None and spare.greeting is not None:
            self.hand_over()
        else:
            self._spare.want(at_once=not self._wanted.keeps_trying or context is not None)

    def await_start(self, on_done: OnReplaced, reason: RecyclingReason, asked_in: Context) -> None:
        self.done(MCPError("another configuration has taken its place"))
        self._wanted = _Replacement(0.0, reason, on_done)
        self._spans.began(reason, asked_in)

    def hand_over(self) -> None:
        """Let the greeted spare take over. Does nothing unless a replacement was requested."""
        wanted, old = self._wanted, self._condition.current
        if wanted is None or old is None or self._call_queue.ready is None or (fresh := self._spare.take()) is None:
            # One of the two processes was lost a moment ago, and its loss is being handled.
            return
        try:
            # From now on the new process is `current`, so it is not forgotten if anything below raises.
            self._condition.current = fresh
            old.retire()
            self._call_queue.drain(old.connection)
            self._make_ready(fresh)
        finally:
            self._draining.drain(old, wanted.drain)
        name, number = self._context.name, self._condition.generation
        reason = f"recycled: {wanted.reason}"
        self._condition.recyclings += 1
        self._condition.last_recycling = reason
        self._spans.replaced(number, fresh.pid)
        logger.info("server_replaced", server=name, generation=number, pid=fresh.pid, reason=reason, drain=wanted.drain)
        self._context.hooks.happened(Restarted(name, number, downtime=0.0, reason=reason))
        self.done(None)

    def failed(self, error: MCPError) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        self._condition.last_error = f"no fresh process could take its place: {error.message}"
        logger.warning("server_not_replaced", server=self._context.name, reason=wanted.reason, error=error.message)
        if wanted.keeps_trying:
            # The spare is started again after its backoff, with the configuration that has worked.
            self._wanted = wanted._replace(on_done=lambda _: None, context=None)
            wanted.on_done(error)
        else:
            self.done(error)

    def done(self, error: MCPError | None) -> None:
        """End the requested replacement, done or not. Does nothing if none was requested."""
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        run_all(
            lambda: self._spans.ended(None if error is None else error.message),
            lambda: None if self._context.standby else self._spare.end(),
            # A thread may wait for this call.
            lambda: wanted.on_done(error),
        )
