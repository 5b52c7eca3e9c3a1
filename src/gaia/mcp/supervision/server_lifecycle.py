"""The steps in the life of one server: it is started, made ready, replaced, stopped when idle, and lost.

The methods below are in this order. `follow_up.py` has the steps after a loss; `Stopping` in `draining.py` ends the
server for good. The supervisor's event loop calls each method. If a method raises, the supervisor calls `recover`; if
that raises too, `abandon`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from opentelemetry.context import Context

from gaia.mcp.errors import ConfigError, MCPError, ServerCrashed
from gaia.mcp.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import RecyclingReason, SupervisionContext
from gaia.mcp.supervision.draining import DrainingConnections, Stopping
from gaia.mcp.supervision.events import Restarted, ServerState
from gaia.mcp.supervision.follow_up import EXITED, NEW_LOGIN, FollowUp, Trial
from gaia.mcp.supervision.generation import Generation, Handlers
from gaia.mcp.supervision.health import hangs
from gaia.mcp.supervision.maintenance import Maintenance
from gaia.mcp.supervision.policy import GiveUp, Loss
from gaia.mcp.supervision.recycling import Idling, Recycling
from gaia.mcp.supervision.spare import OnReplaced, Replacements, Spare
from gaia.mcp.supervision.status import Condition, ServerCore
from gaia.runtime.event_loop import EventLoop, Timer, run_all
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_LAZY = "it was not needed yet; the first call starts it"
_CALLED = "a call came"
_IDLE = "it was idle; the next call starts it again"
_RECONFIGURED = "it has another configuration"


class ServerLifecycle:
    """The life of one server. Belongs to the supervisor's thread, except where a docstring says otherwise."""

    condition: Condition

    def __init__(
        self,
        context: SupervisionContext,
        loop: EventLoop,
        on_settled: Callable[[], None],
        on_adopted: Callable[[], None] = lambda: None,
        new_queue: Callable[..., CallQueue] = CallQueue,
    ) -> None:
        """`on_settled` is called when the first start has succeeded or failed, and may be called again later.

        `on_adopted` is called when `context` has another configuration. `new_queue` makes the call queue.
        """
        self.call_queue = new_queue(
            context.name,
            context.max_pending,
            context.next_id,
            on_call_waiting=lambda: loop.post(self.call_waiting),
            on_expired=lambda call: loop.post(lambda: self.maintain(lambda maintenance: maintenance.expired(call))),
            has_new_login=self._has_new_login,
            retry_in=lambda: self.condition.retry_in,
            safe_to_repeat=context.hooks.safe_to_repeat,
        )
        self.condition = Condition(context, self.call_queue)
        self._context = context
        self._name = context.name
        self._loop = loop
        self._on_settled = on_settled
        self._on_adopted = on_adopted
        self._adopted = context
        self._handlers = Handlers(self._greeted, self._not_greeted, self._not_listed, self._hung, self._ended)
        self._spans = LifecycleSpans(context.observer, context.executor)
        self._recovery = self.condition.recovery
        self._trial = Trial(self.call_queue, loop, context.hooks.refusal_of, self._admit)
        core = ServerCore(context, loop, self.call_queue, self.condition)
        self._draining = DrainingConnections(core, self._admit_again, self._left)
        self._spare = Spare(core, self._draining, self._start, self._spare_failed)
        self.condition.standby = lambda: self._spare.status
        self._recycling = Recycling(context, loop, self._recycle)
        self._idling = Idling(core, self._rest)
        self._resting: Generation | None = None
        """The process that was stopped because it was idle, until it has ended."""
        self.replacements = Replacements(core, self._spare, self._draining, self._replace_by)
        self.follow_up = FollowUp(core, self._spare, self.replacements, self._spans, self, on_settled)
        self._logins = self.follow_up.logins
        ends = (self._idling.end, self._recycling.end, self._spare.end, self._trial.end)
        self.stopping = Stopping(core, self._draining, self._logins, self._spans, ends, on_end=self.replacements.done)

    def requested(self) -> None:
        """Let the spans of the next start or stop belong to the trace of the current thread. For any thread."""
        self._spans.requested()

    def after_fork(self) -> None:
        """In a forked child, for any thread: forget the server, which belongs to the parent."""
        self.call_queue.after_fork()
        self._spare.after_fork()
        self.condition.current = None

    # Starting.

    def begin(self, *, keep_trying: bool = False) -> None:
        """The first start. With `keep_trying`, a failed one is followed by others, as after a crash.

        A lazy server whose tools are known is not started: the first call starts it.
        """
        self._recovery.keep_trying = keep_trying
        self._logins.allow()
        if not self._is_known():
            self.condition.move_to(ServerState.STARTING)
            self.open()
            return
        # The application has continued by then, so a start that fails later must be tried again.
        self._recovery.keep_trying = True
        self.condition.move_to(ServerState.EXITED, _LAZY)
        self._on_settled()

    def _is_known(self) -> bool:
        """Whether the server is lazy and its tools are known. If so, they are listed from memory."""
        known = self._context.hooks.last_known() if self._context.lazy else None
        if known is None:
            return False
        self.condition.profile, tools = known
        self._context.hooks.tools_remembered(tools)
        return True

    def call_waiting(self) -> None:
        is_rested = self._resting is not None and self._resting.connection.in_flight == 0
        if self._trial.is_under_way:
            self._trial.try_next()
        elif self.condition.current is not None or is_rested:
            # The lost or idle process is still being terminated.
            return
        elif self.condition.state is ServerState.EXITED:
            if self.condition.ever_ready:
                self.condition.begin_downtime(_CALLED)
            self.reopen(_CALLED)
        elif self.condition.state is ServerState.NEEDS_AUTHORIZATION and self._has_new_login():
            self.reopen(NEW_LOGIN)

    def _has_new_login(self) -> bool:
        """Whether a server that required a login may accept the client now. For any thread, and quick."""
        return self.condition.keep_trying and self._logins.new()

    def reopen(self, reason: str | None) -> None:
        self.condition.move_to(ServerState.RESTARTING if self.condition.ever_ready else ServerState.STARTING, reason)
        self.open()

    def retry(self) -> None:
        if self._context.lazy and not (self._idling.is_in_use or self.replacements.is_wanted):
            # The server is started when it is needed.
            self.condition.retry_at = None
            self.condition.cancel_downtime()
            self.condition.move_to(ServerState.EXITED, self.condition.last_error)
            self._spans.stays_exited()
            return
        self.reopen(self.call_queue.reason)

    def open(self) -> None:
        self._loop.timers.cancel(Timer.BACKOFF, Timer.COOLDOWN)
        self.condition.retry_at = None
        if (standby := self._spare.take()) is not None:
            # Before any step that could raise, here and below: a process that is not `current` would never be ended.
            self.condition.current = standby
            self.take_over(standby)
            return
        self.condition.generation = self.condition.starts = number = self.condition.starts + 1
        self._spans.opening(number)
        try:
            self.condition.current = generation = self._start(number)
        except MCPError as error:
            self._spans.not_spawned(error.message)
            now = self._context.clock.monotonic()
            # An unusable configuration is unusable at the next attempt too.
            unusable = isinstance(error, ConfigError) and not self.condition.ever_ready
            self.follow_up.proceed(GiveUp() if unusable else self._recovery.after_failure(now), now, error.message)
            return
        self._make_current(generation)
        self._spans.spawned(generation.pid)
        generation.greet()

    def _start(self, number: int) -> Generation:
        context = self.replacements.candidate or self._context
        return Generation(context, self._loop, number, self.call_queue, self._handlers)

    def _greeted(self, generation: Generation) -> None:
        if generation is self.condition.current:
            self._ready(generation)
            self.replacements.done(None)
            return
        self._spare.greeted()
        self.replacements.hand_over()

    def _not_greeted(self, generation: Generation, error: MCPError) -> None:
        if generation is self.condition.current:
            self._lose(error)
        else:
            self._spare.lost(error)

    def _make_current(self, generation: Generation) -> None:
        self.condition.current = generation
        self.condition.generation = generation.connection.generation
        if generation.context is not self._context:
            self._adopt(generation.context)
        generation.present(self._context.observer)

    def _ready(self, generation: Generation, *, has_waited: bool = False) -> None:
        condition, hooks = self.condition, self._context.hooks
        assert generation.greeting is not None, "it was greeted"
        profile = generation.greeting.profile
        condition.profile = profile.masked(generation.connection.redact)
        generation.connection.reads_failures = profile.is_gateway
        now = self._context.clock.monotonic()
        condition.loss = None
        generation.ready(now, has_waited=has_waited)
        self._recycling.begin(generation)
        self._idling.begin(generation)
        condition.move_to(ServerState.READY)
        self._recovery.ready(now)
        self.follow_up.ready()
        downtime = condition.end_downtime(now)
        # All of this before the calls that waited are sent: a caller may read it as soon as it has its answer.
        logger.info("server_ready", server=self._name, generation=condition.generation, pid=generation.pid)
        self._spans.ready(profile.protocol_version, downtime)
        if downtime is not None:
            hooks.happened(Restarted(self._name, condition.generation, downtime, condition.down_reason))
        if self._recovery.tracker.half_open and self.call_queue.ready is None:
            self._trial.begin(generation.connection, now + self._context.policy.stable_after)
        else:
            self._admit()
        self._spans.admitted()
        self._on_settled()

    def _admit(self) -> None:
        self._trial.end()
        generation = self.condition.current
        assert generation is not None, "a server that is lost is not on trial"
        # Calls that were taken back from a lost server may still be written to it.
        withdrawn = not self._draining.may_write_any
        self.call_queue.admit(generation.connection, self._context.hooks.refusal_of, withdrawn=withdrawn)
        if self._context.standby and (withdrawn or len(self.call_queue) == 0):
            # Starting a stand-by takes this thread some milliseconds. If calls still wait, `_admit_again` does it soon.
            self._spare.want()

    # Replacement by a stand-by, or by a requested fresh process.

    def take_over(self, generation: Generation) -> None:
        self._make_current(generation)
        number, pid = self.condition.generation, generation.pid
        self._spans.took_over(number, pid)
        logger.info("standby_took_over", server=self._name, generation=number, pid=pid)
        if generation.greeting is not None:
            self._ready(generation, has_waited=True)
            self.replacements.done(None)

    def _recycle(self, reason: RecyclingReason) -> None:
        if not self.replacements.is_wanted:
            self.replacements.ask(self._context.drain_timeout, lambda _: None, reason)

    def _spare_failed(self, error: MCPError) -> None:
        self.replacements.failed(error)

    def _replace_by(self, generation: Generation) -> None:
        self._make_current(generation)
        self._recovery.tracker.note_end(self._context.clock.monotonic())
        self._ready(generation, has_waited=True)

    def _admit_again(self) -> None:
        if self.call_queue.ready is not None:
            self._admit()
        elif self.condition.state is ServerState.EXITED and len(self.call_queue) > 0:
            self.call_waiting()

    def _left(self, generation: Generation) -> None:
        self.condition.left(generation)
        if generation is self._resting:
            self._resting = None
            self._admit_again()
        self.stopping.left()

    # Another configuration.

    def reconfigure(self, context: SupervisionContext, drain: float, on_done: OnReplaced, asked_in: Context) -> None:
        """Use another configuration of the server.

        A ready server is replaced without a gap, as by `replace`, by a process with that configuration; if that process
        cannot be started, nothing changes. Otherwise the server is started with it, unless it is at rest.
        """
        if self.condition.state is ServerState.CLOSED:
            on_done(MCPError(f"server {self._name!r} is closed"))
            return
        if self.call_queue.ready is not None:
            self.replacements.ask(drain, on_done, "reconfigured", asked_in, context)
            return
        self._adopt(context)
        if self.condition.state is ServerState.EXITED and self._is_known():
            on_done(None)
            return
        self.replacements.await_start(on_done, "reconfigured", asked_in)
        generation = self.condition.current
        if generation is None:
            self.reopen(_RECONFIGURED)
            return
        self.follow_up.start_anew = True
        if not generation.is_terminating:
            self._lose(MCPError(_RECONFIGURED))

    def _adopt(self, context: SupervisionContext) -> None:
        """Put `context` into effect: another generation with it replaces the server, or there is no server now."""
        if context is self._adopted:
            return
        if self._logins.under_way:
            self._logins.abort()
        self._adopted = context
        own = self._context
        own.adopt(context)
        self._recovery.adopt(own.policy, own.negotiation, own.rng)
        self._spare.reconfigured()
        self._logins.adopt(own.transport.authorization)
        self.call_queue.max_pending = own.max_pending
        self._on_adopted()
        own.hooks.adopted(context)

    # While the server runs.

    def _rest(self) -> None:
        """Stop an idle server until the next call. Calls that arrive at this moment are still answered."""
        generation = self.condition.current
        if generation is None or self.call_queue.ready is None or self.replacements.is_wanted:
            return
        uptime, self._resting = self.condition.uptime, generation
        self.condition.current = None
        run_all(
            self._idling.end,
            self._recycling.end,
            self._spare.end,
            lambda: self._draining.let_go(generation, math.inf),
            lambda: self._recovery.tracker.note_end(
                self._context.clock.monotonic(), has_answered=generation.connection.has_answered
            ),
            lambda: self.condition.move_to(ServerState.EXITED, _IDLE),
        )
        logger.info("server_idle", server=self._name, generation=self.condition.generation, pid=generation.pid)
        self._spans.rests(uptime)
        self._admit_again()

    def maintain(self, step: Callable[[Maintenance], object]) -> None:
        current = self.condition.current
        if current is not None and current.maintenance is not None:
            step(current.maintenance)

    def _not_listed(self, generation: Generation, error: MCPError) -> None:
        if generation is not self.condition.current:
            # A stand-by that cannot list its tools must not take over.
            raise error
        self.condition.last_error = error.message
        logger.warning("tools_list_failed", server=self._name, error=error.message)

    # Losing the server.

    def _ended(self, generation: Generation) -> None:
        if generation.maintenance is None:
            return
        if generation is self.condition.current:
            self._lose(None)
        elif generation is self._spare.generation:
            self._spare.lost(None)
        else:
            self._draining.ended(generation)

    def _hung(self, generation: Generation) -> None:
        if generation is not self.condition.current:
            self._draining.hung(generation)
            return
        logger.warning("server_hung", server=self._name, pid=self.condition.pid)
        self._lose(hangs(self._context.health_timeout), hung=True)

    def _lose(self, error: MCPError | None, *, hung: bool = False, internal: bool = False) -> None:
        """Give up the connection because of `error`; None means that the server ended it."""
        generation = self.condition.current
        assert generation is not None, "only what runs can be lost"
        was_ready, uptime = generation.ready_since is not None, self.condition.uptime
        self._trial.end()
        self.call_queue.suspend()
        self.condition.begin_downtime()
        self._spare.rest()
        self._recycling.end()
        self._idling.end()
        ending = generation.lose(error)
        has_answered = generation.connection.has_answered
        loss = Loss(error, ending, was_ready, hung=hung, internal=internal, has_answered=has_answered)
        self.condition.loss = loss
        reason = loss.described()
        self.condition.down_reason = self.condition.down_reason or reason
        self._spans.lost(loss.reason, uptime)
        # Callers get their errors before the server is terminated, which can take seconds.
        had_calls = self.call_queue.take_back(generation.connection, reason, unauthorized=ending.unauthorized)
        self._context.server_requests.lost(generation.connection)
        # A server that is to be replaced must not stay exited: a thread may wait for the new process.
        loss = msgspec.structs.replace(loss, had_calls=had_calls or self.replacements.is_wanted)
        if was_ready and self._recovery.may_stay_exited(loss):
            self.condition.move_to(ServerState.EXITED, EXITED)
        elif was_ready and self._recovery.restarts:
            self.condition.move_to(ServerState.RESTARTING, reason)
        if was_ready and self._spare.generation is not None:
            # The stand-by does not wait until the lost process has ended.
            self._draining.end(generation, loss)
            self.condition.current = None
            self.follow_up.lost(loss, ending)
            return
        generation.terminate(loss, lambda final: self._loop.post(lambda: self._terminated(generation, loss, final)))

    def _terminated(self, generation: Generation, loss: Loss, final: Ending) -> None:
        if generation is not self.condition.current:
            # `abandon` was called meanwhile.
            return
        self.condition.terminated()
        self.follow_up.lost(loss, final)

    # After an exception.

    def recover(self, error: BaseException) -> None:
        """Treat the server as crashed, because a step has raised an exception.

        A first start fails. If the server was lost before the exception, it is still being terminated, and the next
        step is already decided.
        """
        if self.stopping.is_wanted:
            self.abandon(error)
            return
        reason = self._noted(error)
        generation = self.condition.current
        if generation is not None and not generation.is_terminating:
            self._lose(MCPError(reason), internal=True)
        elif generation is None and self._rests():
            return
        elif generation is None or generation.is_terminated:
            self.condition.terminated()
            self._spans.not_spawned(reason)
            now = self._context.clock.monotonic()
            self.follow_up.proceed(self._recovery.after_failure(now), now, reason)

    def _noted(self, error: BaseException) -> str:
        reason = f"internal error: {exception_text(error)}"
        try:
            reason = self._context.observer.masked(reason)
        except Exception:  # noqa: BLE001 - the recovery must not depend on it
            reason = f"internal error: {type(error).__name__}"
        self.condition.last_error = reason
        return reason

    def _rests(self) -> bool:
        """Whether there is no server now, and the event that causes the next start is certain to come."""
        if self._loop.timers.any_set(Timer.BACKOFF, Timer.COOLDOWN) or self._logins.under_way:
            return True
        state = self.condition.state
        if state in (ServerState.EXITED, ServerState.NEEDS_AUTHORIZATION):
            return len(self.call_queue) == 0
        return state is ServerState.FAILED and not (self.condition.keep_trying and self._recovery.restarts)

    def abandon(self, error: BaseException) -> None:
        """The last resort, if `recover` raises too: end the server, and try again once after the cool-down."""
        reason = self._noted(error)
        if self.stopping.is_wanted:
            # A part of the stop was done before.
            self.stopping.close_after(reason)
            return
        timers, again = self._loop.timers, self.condition.keep_trying and self._recovery.restarts
        now, cooldown = self._context.clock.monotonic, self._context.policy.cooldown
        run_all(
            lambda: timers.cancel(Timer.HEALTH, Timer.LISTING, Timer.BACKOFF),
            lambda: self.follow_up.retry_at(Timer.COOLDOWN, now() + cooldown) if again else None,
            lambda: self.stopping.end(ServerState.FAILED, reason, ServerCrashed),
            self._on_settled,
        )
