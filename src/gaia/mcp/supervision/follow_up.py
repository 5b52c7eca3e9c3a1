"""The next step after a server has ended or could not be started: a start now or later, a login, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gaia.mcp.errors import JsonRpcError, MCPError, NeedsAuthorization, ServerUnavailable
from gaia.mcp.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.call_queue import CallQueue, Refusal
from gaia.mcp.supervision.events import GaveUp, ServerState
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.login import Logins
from gaia.mcp.supervision.policy import Decision, GiveUp, Loss, OpenCircuit, Retry, Step
from gaia.mcp.supervision.spare import Replacements, Spare
from gaia.mcp.supervision.status import ServerCore
from gaia.runtime.event_loop import EventLoop, Timer
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

NEW_LOGIN = "there is a new login"
EXITED = "it exited by itself; the next call starts it again"


class StartSteps(Protocol):
    def open(self) -> None: ...

    def reopen(self, reason: str) -> None: ...

    def retry(self) -> None: ...

    def take_over(self, generation: Generation) -> None: ...

    def call_waiting(self) -> None: ...


class FollowUp:
    """Carries out decisions of `Recovery`. Belongs to the supervisor's thread. Sets timers BACKOFF and COOLDOWN."""

    def __init__(
        self,
        core: ServerCore,
        spare: Spare,
        replacements: Replacements,
        spans: LifecycleSpans,
        starts: StartSteps,
        on_settled: Callable[[], None],
    ) -> None:
        """`on_settled` is called when the server is given up, for now or for good."""
        self._context, self._loop, self._call_queue, self._condition = core
        self._name = core.context.name
        self._spare = spare
        self._replacements = replacements
        self._spans = spans
        self._starts = starts
        self._on_settled = on_settled
        self.logins = Logins(
            self._name,
            core.context.transport.authorization,
            lambda error: self._loop.post(lambda: self._logged_in(error)),
        )
        self.start_anew = False
        """Whether the last process was lost on purpose, because of another configuration."""
        self._failure_logged = False
        """Whether the present failure was logged as an error; further failed attempts are logged as information."""

    def ready(self) -> None:
        self.logins.forget()
        self._failure_logged = False

    def lost(self, loss: Loss, final: Ending) -> None:
        now = self._context.clock.monotonic()
        if self.start_anew:
            self._condition.cancel_first_downtime()
        decision = Step.RENEW if self.start_anew else self._condition.recovery.after(loss, now)
        self.start_anew = False
        if isinstance(decision, Retry) and loss.was_ready and self._replacements.is_awaited:
            # The next process is the one that was asked for.
            decision = Retry(0.0)
        self._spans.terminated(
            loss.reason,
            "" if loss.error is None else loss.error.message,
            exit_code=loss.ending.exit_code,
            signal=loss.ending.signal,
            stderr_tail=final.stderr_tail or loss.ending.stderr_tail,
            expected=isinstance(decision, Step),
        )
        self.proceed(decision, now, loss.described(final.stderr_tail), was_ready=loss.was_ready)

    def proceed(self, decision: Decision, now: float, reason: str, *, was_ready: bool = False) -> None:
        """Carry out a decision, made at `now`, about a server that ended or did not start because of `reason`."""
        if decision is Step.RENEW:
            self._starts.open()
            return
        if decision is Step.RETRY_WITH_INITIALIZE:
            logger.debug("server_died_of_the_probe", server=self._name)
            self._condition.cancel_first_downtime()
            self._starts.open()
            return
        self._condition.last_error = reason
        if not isinstance(decision, Step):
            self._condition.cancel_first_downtime()
        match decision:
            case Step.LOG_IN:
                self._log_in(reason)
            case Step.STAY_EXITED:
                self._stay_exited()
            case Retry(delay) if (standby := self._spare.take()) is not None:
                self._condition.current = standby
                # The next stand-by is not started earlier than the server would have been.
                self._spare.delay(now + delay)
                logger.warning("server_lost", server=self._name, reason=reason, restart_in=0.0)
                self._starts.take_over(standby)
            case Retry(delay):
                self.retry_at(Timer.BACKOFF, now + delay)
                self._back_off(delay, reason, was_ready=was_ready)
            case OpenCircuit(until):
                self.retry_at(Timer.COOLDOWN, until)
                self.fail(f"it keeps failing, the last time because {reason}", retry_in=until - now)
            case GiveUp(why):
                self.fail(reason if why is None else f"{reason} (and {why})")

    def _back_off(self, delay: float, reason: str, *, was_ready: bool) -> None:
        if not self._condition.ever_ready:
            # Calls do not wait for a server that may never become ready.
            self.fail(reason, retry_in=delay)
            return
        self._condition.move_to(ServerState.RESTARTING, reason)
        if not was_ready:
            # Further attempts may fail for ever, at intervals that never open the circuit.
            self._replacements.done(ServerUnavailable.of(self._name, reason, delay))
        logger.warning("server_lost", server=self._name, reason=reason, restart_in=delay)
        self._spans.backing_off(delay)

    def retry_at(self, timer: Timer, moment: float) -> None:
        self._loop.timers.set(timer, moment, self._starts.retry)
        self._condition.retry_at = moment

    def _stay_exited(self) -> None:
        self._condition.cancel_downtime()
        self._condition.move_to(ServerState.EXITED, EXITED)
        self._spans.stays_exited()
        if len(self._call_queue) > 0:
            # A call that came before the state was EXITED, or during the termination, did not start the server.
            self._loop.post(self._starts.call_waiting)

    def fail(self, reason: str, retry_in: float | None = None) -> None:
        self._condition.move_to(ServerState.FAILED, reason)
        self._spare.end()
        self._replacements.done(ServerUnavailable.of(self._name, reason, retry_in))
        if self._failure_logged:
            logger.info("server_still_failing", server=self._name, reason=reason, retry_in=retry_in)
        else:
            logger.error("server_failed", server=self._name, reason=reason, retry_in=retry_in)
        self._failure_logged = True
        self._spans.gave_up(reason)
        self._context.hooks.happened(GaveUp(self._name, reason=reason, retry_in=retry_in))
        self._on_settled()

    # Logging in.

    def _log_in(self, reason: str) -> None:
        self._spare.end()
        if self.logins.may_ask:
            self._condition.move_to(ServerState.AUTHORIZING, reason)
            self.logins.ask()
        else:
            self._not_authorized(reason)

    def _logged_in(self, error: MCPError | None) -> None:
        if not self.logins.under_way:
            return
        self.logins.over()
        if error is not None:
            self._condition.last_error = error.message
            self._not_authorized(error.message)
        else:
            self._condition.cancel_first_downtime()
            self._starts.reopen(NEW_LOGIN)

    def _not_authorized(self, reason: str) -> None:
        self.logins.forget()
        self._condition.move_to(ServerState.NEEDS_AUTHORIZATION, reason)
        self._replacements.done(NeedsAuthorization(reason, status=401))
        self._spans.gave_up(reason)
        logger.warning("server_needs_authorization", server=self._name, reason=reason)
        self._on_settled()


class Trial:
    """Gives calls to a server on trial, one at a time. Belongs to the supervisor's thread."""

    def __init__(self, queue: CallQueue, loop: EventLoop, refusal: Refusal, on_passed: Callable[[], None]) -> None:
        """`on_passed` is called when a call was answered, or the server was stable for long enough."""
        self._queue = queue
        self._loop = loop
        self._refusal = refusal
        self._on_passed = on_passed
        self._connection: Connection | None = None
        self._call: Call | None = None

    @property
    def is_under_way(self) -> bool:
        return self._connection is not None

    def begin(self, connection: Connection, until: float) -> None:
        """Try the calls that wait. At the time `until` the server has passed."""
        self._connection = connection
        self._loop.timers.set(Timer.TRIAL, until, self._on_passed)
        self.try_next()

    def try_next(self) -> None:
        if self._call is None and self._connection is not None:
            self._call = self._queue.admit_one(
                self._connection, self._refusal, lambda call: self._loop.post(lambda: self._tried(call))
            )

    def end(self) -> None:
        self._connection = self._call = None
        self._loop.timers.cancel(Timer.TRIAL)

    def _tried(self, call: Call) -> None:
        if call is not self._call:
            return
        self._call = None
        if call.error is None or isinstance(call.error, JsonRpcError):
            self._on_passed()
        else:
            self.try_next()
