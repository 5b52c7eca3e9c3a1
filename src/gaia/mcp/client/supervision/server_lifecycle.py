"""What is done with one server: it is started, made ready, left alone, lost, logged in at, started again, and stopped.

The methods are in this order below. The supervisor's event loop says when each of them is called. A method that raises
is followed by `recover`, and if that raises too, by `abandon`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
from opentelemetry.context import Context

from gaia.exception_text import exception_text
from gaia.log import get_logger
from gaia.mcp.client.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.supervision.call_queue import CallQueue
from gaia.mcp.client.supervision.context import SupervisionContext
from gaia.mcp.client.supervision.event_loop import EventLoop, Task, Timer, run_all
from gaia.mcp.client.supervision.events import GaveUp, Restarted, ServerState
from gaia.mcp.client.supervision.generation import Generation
from gaia.mcp.client.supervision.idling import Idling
from gaia.mcp.client.supervision.leaving import Leaving
from gaia.mcp.client.supervision.login import Logins
from gaia.mcp.client.supervision.maintenance import Maintenance
from gaia.mcp.client.supervision.policy import Decision, GiveUp, Loss, OpenCircuit, Recovery, Retry, Step
from gaia.mcp.client.supervision.recycling import Recycling
from gaia.mcp.client.supervision.recycling_limits import RecyclingReason
from gaia.mcp.client.supervision.replacement import OnReplaced, Replacements
from gaia.mcp.client.supervision.spare import Spare
from gaia.mcp.client.supervision.status import Condition
from gaia.mcp.client.supervision.trial import Trial
from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    ConfigError,
    MCPError,
    NeedsAuthorization,
    ServerCrashed,
    ServerUnavailable,
)

__all__ = ["ServerLifecycle"]

logger = get_logger(__name__)

_NEW_LOGIN = "there is a new login"
_EXITED = "it exited by itself; the next call starts it again"
_LAZY = "it was not needed yet; the first call starts it"
_IDLE = "it was idle; the next call starts it again"
_RECONFIGURED = "it has another configuration"


class ServerLifecycle:
    """The life of one server. Belongs to the supervisor's thread: what other threads may use says so."""

    def __init__(
        self,
        context: SupervisionContext,
        loop: EventLoop,
        on_settled: Callable[[], None],
        on_adopted: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_settled` is called when the first start has succeeded or failed, and perhaps later too.

        `on_adopted` is called when `context` has another configuration.
        """
        self.call_queue = CallQueue(
            context.name,
            context.max_pending,
            on_call_waiting=lambda: loop.post(self.call_waiting),
            on_expired=lambda call: loop.post(lambda: self._expired(call)),
            has_new_login=self._has_new_login,
            retry_in=lambda: self.condition.retry_in,
            safe_to_repeat=context.hooks.safe_to_repeat,
        )
        """For any thread."""
        self.condition = Condition(context, self.call_queue)
        """For any thread to read."""
        self._context = context
        self._name = context.name
        self._loop = loop
        self._on_settled = on_settled
        self._on_adopted = on_adopted
        self._adopted = context
        """What `context` is equal to."""
        self._spans = LifecycleSpans(context.observer, context.executor)
        self._logins = self._new_logins()
        self._recovery = Recovery(context.policy, context.negotiation, context.rng)
        self._closing: str | None = None
        """Why the server is stopped for good, from that on."""
        self._trial = Trial(self.call_queue, loop, context.hooks.refusal_of, self._admit)
        self._leaving = Leaving(context, loop, self.call_queue, self._admit_again, self._left)
        self._spare = Spare(context, loop, self.call_queue, self._leaving, self.condition.next_start, self)
        self.condition.standby = lambda: self._spare.status
        self._recycling = Recycling(
            context.recycling, context.clock, context.rng, loop, context.policy.stable_after, self._recycle
        )
        self._idling = Idling(context, loop, self.call_queue, self._rest)
        self._resting: Generation | None = None
        """The process that was stopped because it was idle, until it has ended."""
        self._finishing: str | None = None
        """Why the server is stopped for good, while it finishes its calls."""
        self._start_anew = False
        """Whether the process that was lost last had to go because of another configuration."""
        self._replacements = Replacements(
            context, self.call_queue, self.condition, self._spare, self._leaving, self._replace_by
        )
        self._failure_logged = False
        """Whether the present failure was logged as an error; further attempts that fail are information."""

    def requested(self) -> None:
        """The current thread wants the server started or stopped: that belongs to its trace. For any thread."""
        self._spans.requested()

    def after_fork(self) -> None:
        """In a forked child, for any thread: the server belongs to the parent."""
        self.call_queue.after_fork()
        self._spare.after_fork()
        self.condition.current = None

    # Starting.

    def begin(self, *, keep_trying: bool = False) -> None:
        """The first start. With `keep_trying` one that fails is followed by others, as after a crash.

        A lazy server is only said to be there, if it is known what it offers. It is started by its first call.
        """
        self._recovery.keep_trying = self.condition.keep_trying = keep_trying
        self._logins.allow()
        if not self._is_known():
            self.condition.move_to(ServerState.STARTING)
            self._open()
            return
        # A start that fails later is not the application's to notice.
        self._recovery.keep_trying = self.condition.keep_trying = True
        self.condition.move_to(ServerState.EXITED, _LAZY)
        self._on_settled()

    def _is_known(self) -> bool:
        """Whether the server is lazy and it is known what it offers, which is listed then."""
        known = self._context.hooks.last_known() if self._context.lazy else None
        if known is None:
            return False
        self.condition.profile, tools = known
        self._context.hooks.tools_remembered(tools)
        return True

    def call_waiting(self) -> None:
        """A call came for a server that does not run, or is on trial."""
        if self._trial.is_under_way:
            self._trial.try_next()
            return
        if self.condition.current is not None:
            # One that was lost is still being terminated.
            return
        if self._resting is not None and self._resting.connection.in_flight == 0:
            # So is one that was idle.
            return
        if self.condition.state is ServerState.EXITED:
            if self.condition.ever_ready:
                self.condition.begin_downtime()
            self._reopen("a call came")
        elif self.condition.state is ServerState.NEEDS_AUTHORIZATION and self._has_new_login():
            self._reopen(_NEW_LOGIN)

    def _reopen(self, reason: str | None) -> None:
        self.condition.move_to(ServerState.RESTARTING if self.condition.ever_ready else ServerState.STARTING, reason)
        self._open()

    def _retry(self) -> None:
        if self._context.lazy and not self._idling.is_in_use:
            # It is started when it is needed, now that it may be.
            self.condition.retry_at = None
            self.condition.cancel_downtime()
            self.condition.move_to(ServerState.EXITED, self.condition.last_error)
            self._spans.stays_exited()
            return
        self._reopen(self.call_queue.reason)

    def _open(self) -> None:
        """Have the stand-by take over, or start the server if there is none."""
        self._loop.timers.cancel(Timer.BACKOFF, Timer.COOLDOWN)
        self.condition.retry_at = None
        if (standby := self._spare.take()) is not None:
            # Before anything that could raise, here and below: what is not known to be there is never ended.
            self.condition.current = standby
            self._take_over(standby)
            return
        self.condition.generation = number = self.condition.next_start()
        self._spans.opening(number)
        try:
            self.condition.current = generation = self.start(number)
        except MCPError as error:
            self._spans.not_spawned(error.message)
            now = self._context.clock.monotonic()
            # A configuration that cannot be used is the same the next time.
            unusable = isinstance(error, ConfigError) and not self.condition.ever_ready
            self._proceed(GiveUp() if unusable else self._recovery.after_failure(now), now, error.message)
            return
        self._make_current(generation)
        self._spans.spawned(generation.pid)
        self.greet(generation)

    def start(self, number: int) -> Generation:
        """Start a generation. Raises MCPError."""
        context = self._replacements.candidate or self._context
        return Generation(context, self._loop, number, self.call_queue.repeat, self._ended)

    def greet(self, generation: Generation) -> None:
        """Begin to greet a generation."""
        number = generation.connection.generation
        logger.debug("server_started", server=self._name, generation=number, pid=generation.pid)
        generation.greet(self.call_queue.next_id, self._greeted, self._not_greeted, self._hung, self._not_listed)

    def _greeted(self, generation: Generation) -> None:
        if generation is self.condition.current:
            self._ready(generation)
            self._replacements.done(None)
            return
        self._spare.greeted()
        self._replacements.hand_over()

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
        now = self._context.clock.monotonic()
        generation.ready(now, has_waited=has_waited)
        self._recycling.begin(generation)
        self._idling.begin(generation)
        self._logins.forget()
        condition.move_to(ServerState.READY)
        self._recovery.ready(now)
        condition.ever_ready = condition.keep_trying = True
        self._failure_logged = False
        downtime = condition.end_downtime(now)
        # All of it before the calls that waited are sent: a caller may look at it as soon as it has its answer.
        logger.info("server_ready", server=self._name, generation=condition.generation, pid=generation.pid)
        self._spans.ready(profile.protocol_version, downtime)
        if downtime is not None:
            hooks.happened(Restarted(self._name, condition.generation, downtime=downtime))
        if self._recovery.half_open and self.call_queue.ready is None:
            self._trial.begin(generation.connection, now + self._recovery.trial_seconds)
        else:
            self._admit()
        self._spans.admitted()
        self._on_settled()

    def _admit(self) -> None:
        self._trial.end()
        generation = self.condition.current
        assert generation is not None, "a server that is lost is not on trial"
        # What was taken back from a lost server may still be written to it.
        withdrawn = not self._leaving.may_write_any
        self.call_queue.admit(generation.connection, self._context.hooks.refusal_of, withdrawn=withdrawn)
        if self._context.standby and (withdrawn or len(self.call_queue) == 0):
            # Starting it takes this thread some milliseconds, for which calls do not wait: `_admit_again` comes soon.
            self._spare.want()

    # By a stand-by, or by a fresh process that was asked for.

    def _take_over(self, generation: Generation) -> None:
        """The server was lost, and `generation` is its stand-by."""
        self._make_current(generation)
        number, pid = self.condition.generation, generation.pid
        self._spans.took_over(number, pid)
        logger.info("standby_took_over", server=self._name, generation=number, pid=pid)
        if generation.greeting is not None:
            self._ready(generation, has_waited=True)
            self._replacements.done(None)

    def replace(self, drain: float, on_done: OnReplaced, asked_in: Context) -> None:
        """Have a fresh process take the place of a server that is ready, without a gap; see `Replacements.ask`."""
        self._replacements.ask(drain, on_done, "requested", asked_in)

    def _recycle(self, reason: RecyclingReason) -> None:
        """The server has reached a limit."""
        if not self._replacements.is_wanted:
            self._replacements.ask(self._context.drain_timeout, lambda _: None, reason)

    def _replace_by(self, generation: Generation) -> None:
        self._make_current(generation)
        self._recovery.replaced(self._context.clock.monotonic())
        self._ready(generation, has_waited=True)

    def standby_failed(self, error: MCPError) -> None:
        """A stand-by, or a fresh process that was asked for, could not be started or was lost."""
        self._replacements.failed(error)

    def _admit_again(self) -> None:
        """Nothing more will be written to a generation whose place another one has taken."""
        if self.call_queue.ready is not None:
            self._admit()
        elif self.condition.state is ServerState.EXITED and len(self.call_queue) > 0:
            self.call_waiting()

    def _left(self, generation: Generation) -> None:
        """A generation whose place another one has taken, or that was let go, has ended completely."""
        self.condition.left(generation)
        if generation is self._resting:
            self._resting = None
            self._admit_again()
        if self._finishing is not None and self._leaving.is_empty:
            self.close(self._finishing)

    # With another configuration.

    def reconfigure(self, context: SupervisionContext, drain: float, on_done: OnReplaced, asked_in: Context) -> None:
        """Go on with another configuration of the server.

        If the server is ready there is no gap, as for `replace`: a process with that configuration takes its place, and
        nothing changes if it cannot be started. Otherwise the server is started with it, unless it is at rest.
        """
        if self.condition.state is ServerState.CLOSED:
            on_done(MCPError(f"server {self._name!r} is closed"))
            return
        if self.call_queue.ready is not None:
            self._replacements.ask(drain, on_done, "reconfigured", asked_in, context)
            return
        self._adopt(context)
        if self.condition.state is ServerState.EXITED and self._is_known():
            on_done(None)
            return
        self._replacements.await_start(on_done, "reconfigured", asked_in)
        generation = self.condition.current
        if generation is None:
            self._reopen(_RECONFIGURED)
            return
        self._start_anew = True
        if not generation.is_terminating:
            self._lose(MCPError(_RECONFIGURED))

    def _adopt(self, context: SupervisionContext) -> None:
        """`context` holds from now on. Another generation takes the server's place with it, or there is none."""
        if context is self._adopted:
            return
        if self._logins.under_way:
            self._logins.abort()
        self._adopted = context
        own = self._context
        own.adopt(context)
        earlier = self._recovery
        self._recovery = Recovery(own.policy, own.negotiation, own.rng)
        self._recovery.ever_ready, self._recovery.keep_trying = earlier.ever_ready, earlier.keep_trying
        self._recycling.adopt(own.recycling, own.policy.stable_after)
        self._spare.reconfigured()
        self._logins = self._new_logins()
        self._logins.allow()
        self.call_queue.max_pending = own.max_pending
        self._on_adopted()
        own.hooks.adopted(context)

    def _new_logins(self) -> Logins:
        authorization = self._context.transport.authorization
        return Logins(self._name, authorization, lambda error: self._loop.post(lambda: self._logged_in(error)))

    # While it runs.

    def _rest(self) -> None:
        """The server is idle: stop it until the next call. Calls that come at this moment are answered all the same."""
        generation = self.condition.current
        if generation is None or self.call_queue.ready is None or self._replacements.is_wanted:
            return
        uptime, self._resting = self.condition.uptime, generation
        self.condition.current = None
        run_all(
            self._idling.end,
            self._recycling.end,
            self._spare.end,
            lambda: self._leaving.let_go(generation, math.inf),
            lambda: self._recovery.replaced(self._context.clock.monotonic()),
            lambda: self.condition.move_to(ServerState.EXITED, _IDLE),
        )
        logger.info("server_idle", server=self._name, generation=self.condition.generation, pid=generation.pid)
        self._spans.rests(uptime)
        self._admit_again()

    def subscriptions_changed(self) -> None:
        """The client wants other changes or log messages than before."""
        if (maintenance := self._maintenance) is not None:
            maintenance.subscriptions_changed()

    def _expired(self, call: Call) -> None:
        """A call that was handed to the server timed out."""
        if (maintenance := self._maintenance) is not None:
            maintenance.expired(call)

    @property
    def _maintenance(self) -> Maintenance | None:
        """Of the server that runs; None if there is none, or it was lost."""
        current = self.condition.current
        return None if current is None else current.maintenance

    def _not_listed(self, generation: Generation, error: MCPError) -> None:
        if generation is not self.condition.current:
            # One that cannot list its tools is not fit to take over.
            raise error
        self.condition.last_error = error.message
        logger.warning("tools_list_failed", server=self._name, error=error.message)

    # Losing it.

    def _ended(self, generation: Generation) -> None:
        """The server's output ended, its process exited, or it closed its input."""
        if generation.maintenance is None:
            return
        if generation is self.condition.current:
            self._lose(None)
        elif generation is self._spare.generation:
            self._spare.lost(None)
        else:
            self._leaving.ended(generation)

    def _hung(self, generation: Generation) -> None:
        if generation is not self.condition.current:
            self._leaving.hung(generation)
            return
        logger.warning("server_hung", server=self._name, pid=self.condition.pid)
        timeout = self._context.health_timeout
        self._lose(CallTimeout(f"it hangs, and answered no probe within {timeout:g} s"), hung=True)

    def _lose(self, error: MCPError | None, *, hung: bool = False, internal: bool = False) -> None:
        """The connection is over: `error` says why; None says that the server ended it."""
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
        loss = Loss(error, ending, was_ready, hung=hung, internal=internal)
        reason = loss.described()
        self._spans.lost(loss.reason, uptime)
        # Callers learn of it before the server is terminated, which can take seconds.
        had_calls = self.call_queue.take_back(generation.connection.close(), reason, unauthorized=ending.unauthorized)
        self._context.server_requests.lost(generation.connection)
        # One that should be replaced must not stay exited: what asked for that may wait for the fresh process.
        loss = msgspec.structs.replace(loss, had_calls=had_calls or self._replacements.is_wanted)
        if was_ready and self._recovery.may_stay_exited(loss):
            self.condition.move_to(ServerState.EXITED, _EXITED)
        elif was_ready and self._recovery.restarts:
            self.condition.move_to(ServerState.RESTARTING, reason)
        if was_ready and self._spare.generation is not None:
            # What follows does not wait until the lost one has ended.
            self._leaving.end(generation, loss)
            self.condition.current = None
            self._decide(loss, ending)
            return
        generation.terminate(loss, lambda final: self._loop.post(lambda: self._terminated(generation, loss, final)))

    # After it has ended.

    def _terminated(self, generation: Generation, loss: Loss, final: Ending) -> None:
        """The lost server has been ended, with all that it started."""
        if generation is not self.condition.current:
            # It was abandoned meanwhile.
            return
        self.condition.terminated()
        self._decide(loss, final)

    def _decide(self, loss: Loss, final: Ending) -> None:
        """What follows a loss, of which no more than `final` will be known."""
        now = self._context.clock.monotonic()
        start_anew, self._start_anew = self._start_anew, False
        decision = Step.RENEW if start_anew else self._recovery.after(loss, now)
        if start_anew:
            self._cancel_first_downtime()
        self._spans.terminated(
            loss.reason,
            "" if loss.error is None else loss.error.message,
            exit_code=loss.ending.exit_code,
            signal=loss.ending.signal,
            stderr_tail=final.stderr_tail or loss.ending.stderr_tail,
            expected=isinstance(decision, Step),
        )
        self._proceed(decision, now, loss.described(final.stderr_tail))

    def _proceed(self, decision: Decision, now: float, reason: str) -> None:
        """Do what was decided at `now` about a server that ended or could not be started; `reason` says why it did."""
        if not isinstance(decision, Step):
            self._cancel_first_downtime()
        match decision:
            case Step.RENEW:
                self._open()
            case Step.RETRY_WITH_INITIALIZE:
                logger.debug("server_died_of_the_probe", server=self._name)
                self._cancel_first_downtime()
                self._open()
            case Step.LOG_IN:
                self._log_in(reason)
            case Step.STAY_EXITED:
                self._stay_exited(reason)
            case Retry(delay) if (standby := self._spare.take()) is not None:
                self.condition.current = standby
                # The next process is started no sooner than without a stand-by.
                self._spare.delay(now + delay)
                self.condition.last_error = reason
                logger.warning("server_lost", server=self._name, reason=reason, restart_in=0.0)
                self._take_over(standby)
            case Retry(delay):
                self._retry_at(Timer.BACKOFF, now + delay)
                if self.condition.ever_ready:
                    self._back_off(delay, reason)
                else:
                    # Calls do not wait for a server that may never come.
                    self.condition.last_error = reason
                    self.fail(reason, retry_in=delay)
            case OpenCircuit(until):
                self._retry_at(Timer.COOLDOWN, until)
                self.condition.last_error = reason
                self.fail(f"it keeps failing, the last time because {reason}", retry_in=until - now)
            case GiveUp(why):
                self.condition.last_error = reason
                self.fail(reason if why is None else f"{reason} (and {why})")

    def _retry_at(self, timer: Timer, moment: float) -> None:
        self._loop.timers.set(timer, moment, self._retry)
        self.condition.retry_at = moment

    def _cancel_first_downtime(self) -> None:
        """A server that was never ready has no downtime."""
        if not self.condition.ever_ready:
            self.condition.cancel_downtime()

    def _stay_exited(self, reason: str) -> None:
        self.condition.last_error = reason
        self.condition.cancel_downtime()
        self.condition.move_to(ServerState.EXITED, _EXITED)
        self._spans.stays_exited()
        if len(self.call_queue) > 0:
            # A call that came before the state was EXITED, or during the termination, did not start the server.
            self._loop.post(self.call_waiting)

    def _back_off(self, delay: float, reason: str) -> None:
        self.condition.last_error = reason
        self.condition.move_to(ServerState.RESTARTING, reason)
        logger.warning("server_lost", server=self._name, reason=reason, restart_in=delay)
        self._spans.backing_off(delay)

    def fail(self, reason: str, retry_in: float | None = None) -> None:
        """The server is not started again, or only in `retry_in` seconds."""
        self.condition.move_to(ServerState.FAILED, reason)
        self._spare.end()
        self._replacements.done(ServerUnavailable.of(self._name, reason, retry_in))
        # One error for one failure, however often the server is tried again until it is ready.
        if self._failure_logged:
            logger.info("server_still_failing", server=self._name, reason=reason, retry_in=retry_in)
        else:
            logger.error("server_failed", server=self._name, reason=reason, retry_in=retry_in)
        self._failure_logged = True
        self._spans.gave_up(reason)
        self._context.hooks.happened(GaveUp(self._name, reason=reason, retry_in=retry_in))
        self._on_settled()

    # Logging in.

    def _has_new_login(self) -> bool:
        """Whether a server that required a login may accept us now. For any thread, and quick."""
        return self.condition.keep_trying and self._logins.new()

    def _log_in(self, reason: str) -> None:
        """The server requires a login. Waiting would not change that, so it is not tried again and again."""
        self.condition.last_error = reason
        self._spare.end()
        if self._logins.may_ask:
            self.condition.move_to(ServerState.AUTHORIZING, reason)
            self._logins.ask()
        else:
            self._not_authorized(reason)

    def _logged_in(self, error: MCPError | None) -> None:
        """A person has logged in, or the login failed."""
        if not self._logins.under_way:
            return
        self._logins.over()
        if error is not None:
            self._not_authorized(error.message)
            return
        self._cancel_first_downtime()
        state = ServerState.RESTARTING if self.condition.ever_ready else ServerState.STARTING
        self.condition.move_to(state, _NEW_LOGIN)
        self._open()

    def _not_authorized(self, reason: str) -> None:
        """There is no person to ask for a login, or the login failed."""
        self.condition.last_error = reason
        self._logins.forget()
        self.condition.move_to(ServerState.NEEDS_AUTHORIZATION, reason)
        self._replacements.done(NeedsAuthorization(reason, status=401))
        self._spans.gave_up(reason)
        logger.warning("server_needs_authorization", server=self._name, reason=reason)
        self._on_settled()

    # After an exception.

    def recover(self, error: BaseException) -> None:
        """A step was ended by an exception: the server is lost, as in a crash, and what follows a crash follows.

        A first start fails. A server that was lost before is still being terminated, and what follows is known then.
        """
        self._closing = self._closing or self._finishing
        if self._closing is not None:
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
            self._proceed(self._recovery.after_failure(now), now, reason)

    def _noted(self, error: BaseException) -> str:
        reason = f"internal error: {exception_text(error)}"
        try:
            reason = self._context.observer.masked(reason)
        except Exception:  # noqa: BLE001 - the recovery must not depend on it
            reason = f"internal error: {type(error).__name__}"
        self.condition.last_error = reason
        return reason

    def _rests(self) -> bool:
        """Whether there is no server now, and what has to happen for the next start is known."""
        if self._loop.timers.any_set(Timer.BACKOFF, Timer.COOLDOWN) or self._logins.under_way:
            return True
        state = self.condition.state
        if state in (ServerState.EXITED, ServerState.NEEDS_AUTHORIZATION):
            return len(self.call_queue) == 0
        return state is ServerState.FAILED and not (self.condition.keep_trying and self._recovery.restarts)

    def abandon(self, error: BaseException) -> None:
        """The last resort, if even `recover` raises: end the server, and try again once after the cool-down."""
        reason = self._noted(error)
        if self._closing is not None:
            # Some of it was done before.
            self._end(ServerState.CLOSED, self._closing, CallCancelled)
            return
        timers, again = self._loop.timers, self.condition.keep_trying and self._recovery.restarts
        now, cooldown = self._context.clock.monotonic, self._context.policy.cooldown
        run_all(
            lambda: timers.cancel(Timer.HEALTH, Timer.LISTING, Timer.BACKOFF),
            lambda: self._retry_at(Timer.COOLDOWN, now() + cooldown) if again else None,
            lambda: self._end(ServerState.FAILED, reason, ServerCrashed),
            self._on_settled,
        )

    # Stopping.

    @property
    def is_finishing(self) -> bool:
        """Whether the server is stopped for good, as soon as it has finished its calls."""
        return self._finishing is not None and self._closing is None

    def finish(self, reason: str, drain: float) -> None:
        """Stop the server for good. It has `drain` seconds to finish its calls if it is ready; new ones are refused."""
        generation = self.condition.current
        if drain <= 0 or (not self.is_finishing and (generation is None or self.call_queue.ready is None)):
            self.close(reason)
            return
        if generation is None:
            # It was asked for before, and goes on.
            return
        self._finishing = reason
        self.condition.current = None
        error = CallCancelled(f"server {self._name!r} is closed: {reason}")
        run_all(
            # Before the connection is taken away: no call gets into the backlog then.
            lambda: self.condition.move_to(ServerState.CLOSED, reason),
            self._idling.end,
            self._recycling.end,
            self._spare.end,
            lambda: self._leaving.let_go(generation, drain),
            lambda: self._replacements.done(error),
        )

    def close(self, reason: str) -> None:
        """Stop the server for good, and wait for its end."""
        self._closing = reason
        run_all(
            lambda: self._spans.closing(self.condition.uptime),
            lambda: self._end(ServerState.CLOSED, reason, CallCancelled),
        )

    def _end(self, state: ServerState, reason: str, error: Callable[[str], MCPError]) -> None:
        """End the server and all calls. Each of these steps is taken, whatever becomes of the others."""
        generation, final = self.condition.current, Ending()
        message = f"server {self._name!r} is {state.value}: {reason}"
        steps: list[Task] = [
            lambda: self.condition.move_to(state, reason),
            self._recycling.end,
            self._idling.end,
            self._spare.end,
            lambda: self._leaving.end_all(lambda: error(message)),
            lambda: self._replacements.done(error(message)),
            self._logins.abort,
            self._trial.end,
            self.call_queue.suspend,
        ]
        if generation is not None:
            generation.ready_since = None
            connection = generation.connection
            steps += [
                lambda: self.call_queue.fail(connection.close(), lambda: error(message)),
                lambda: self._context.server_requests.lost(connection),
            ]
        try:
            run_all(*steps)
        finally:
            if generation is not None:
                final = generation.stop()
            self._leaving.wait()
        self.condition.terminated()
        if self._closing is None:
            self._spans.gave_up(reason)
        else:
            self._spans.closed(final.exit_code, final.signal)
