"""What is done with one server: it is started, made ready, lost, let in, left alone, started again, and stopped.

The chapters of a server's life are in this order below. When each of them comes is the supervisor's business.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable
from typing import Any

from gaia.log import get_logger
from gaia.mcp.client.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.client.observation.request_spans import Executor, Observer
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.call_queue import CallQueue
from gaia.mcp.client.supervision.condition import Condition
from gaia.mcp.client.supervision.events import GaveUp, Restarted, ServerState
from gaia.mcp.client.supervision.exchange_runner import ExchangeRunners
from gaia.mcp.client.supervision.generation import Generation, Generations
from gaia.mcp.client.supervision.login import Logins
from gaia.mcp.client.supervision.mailbox import Answered, Closed, Expired, Letter, LoggedIn, Wanted
from gaia.mcp.client.supervision.maintenance import Maintenance
from gaia.mcp.client.supervision.policy import OpenCircuit, Retry
from gaia.mcp.client.supervision.recovery import Decision, GiveUp, Recovery, Step
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.client.supervision.settings import SupervisionHooks, SupervisionSettings
from gaia.mcp.client.supervision.termination import Loss, loss_reason
from gaia.mcp.client.supervision.timers import Timer, Timers, Waiting
from gaia.mcp.client.supervision.tool_listing import open_and_list
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.errors import CallCancelled, CallTimeout, MCPError

__all__ = ["ServerLifecycle"]

logger = get_logger(__name__)

_NEW_LOGIN = "there is a new login"
_EXITED = "it exited by itself; the next call starts it again"


class ServerLifecycle:
    """The life of one server. Belongs to the supervisor's thread: what other threads may use says so."""

    def __init__(
        self,
        name: str,
        transport: ChannelTransport,
        settings: SupervisionSettings,
        hooks: SupervisionHooks,
        server_requests: ServerRequests,
        clock: Clock,
        rng: random.Random,
        observer: Observer,
        executor: Executor,
        *,
        mailbox: queue.SimpleQueue[Letter],
        timers: Timers,
        next_id: Callable[[], int],
        watch: Callable[[Waiting], None],
        on_settled: Callable[[], None],
    ) -> None:
        """What other threads have to say is put into the `mailbox`, and comes back as a call of a method here.

        ``watch(question)`` enforces a deadline, from any thread. `on_settled` is called when the first start has
        succeeded or failed, and perhaps later too. For `observer` and `run` see `Supervisor`.
        """
        self.call_queue = CallQueue(
            name,
            settings.max_pending,
            on_wanted=lambda: mailbox.put(Wanted()),
            on_expired=lambda call: mailbox.put(Expired(call)),
            may_be_let_in=self._may_be_let_in,
        )
        """For any thread."""
        self.condition = Condition(name, self.call_queue, hooks, clock)
        """For any thread to read."""
        self._name = name
        self._settings = settings
        self._hooks = hooks
        self._server_requests = server_requests
        self._clock = clock
        self._mailbox = mailbox
        self._timers = timers
        self._next_id = next_id
        self._on_settled = on_settled
        self._lifecycle = LifecycleSpans(observer, executor)
        self._logins = Logins(name, transport.authorization, lambda error: mailbox.put(LoggedIn(error)))
        self._recovery = Recovery(settings.policy, settings.negotiation, rng)
        self._runners = ExchangeRunners(
            clock, settings.ready_timeout, next_id, timers.watch, lambda *news: mailbox.put(Answered(*news))
        )
        self._generations = Generations(
            name,
            transport,
            server_requests,
            clock,
            observer,
            executor,
            mailbox,
            settings.max_pending,
            watch,
            lambda call: self.call_queue.repeat(call, next_id),
        )

    def requested(self) -> None:
        """Somebody wants the server started or stopped: what comes next belongs to that trace. For any thread."""
        self._lifecycle.requested()

    def after_fork(self) -> None:
        """In a forked child, for any thread: the server belongs to the parent."""
        self.call_queue.after_fork()
        self.condition.current = None

    # Starting.

    def begin(self) -> None:
        self._logins.allow()
        self.condition.move_to(ServerState.STARTING)
        self._open()

    def wanted(self) -> None:
        """A call came for a server that does not run."""
        if self.condition.current is not None:
            # One that was lost is still being ended.
            return
        if self.condition.state is ServerState.EXITED:
            self.condition.missed()
            self._reopen("a call came")
        elif self.condition.state is ServerState.NEEDS_AUTHORIZATION and self._may_be_let_in():
            self._reopen(_NEW_LOGIN)

    def _reopen(self, reason: str | None) -> None:
        self.condition.move_to(ServerState.RESTARTING, reason)
        self._open()

    def _open(self) -> None:
        self.condition.generation += 1
        number = self.condition.generation
        self._lifecycle.opening(number)
        try:
            generation = self._generations.start(number)
        except MCPError as error:
            self._lifecycle.not_spawned(error.message)
            now = self._clock.monotonic()
            self._proceed(self._recovery.after_failure(now, known=self.condition.known), now, error.message)
            return
        self._lifecycle.spawned(generation.pid)
        self.condition.current = generation
        logger.debug("server_started", server=self._name, generation=number, pid=generation.pid)
        run_exchange = self._runners.on(generation.connection)
        generation.maintenance = Maintenance(
            generation.connection,
            run_exchange,
            generation.notifications,
            self._settings,
            self._hooks,
            self._clock,
            self._hung,
            self._not_listed,
            lambda at: self._timers.set(Timer.LISTING, at),
        )
        opening = open_and_list(self._settings.negotiation, self._settings.identity, self._not_listed)
        run_exchange(opening, lambda outcome: self._opened(generation, *outcome), self._lose)

    def _opened(self, generation: Generation, profile: ServerProfile, tools: list[Any]) -> None:
        self.condition.profile = profile.masked(generation.connection.redact)
        now = self._clock.monotonic()
        self._recovery.ready(now)
        self._timers.set(Timer.HEALTH, generation.ready(now, profile, tools))
        self._logins.forget()
        self.condition.move_to(ServerState.READY)
        downtime = self.condition.downtime(now)
        # All of it before the calls that waited are sent: whoever has an answer may look at once.
        logger.info("server_ready", server=self._name, generation=self.condition.generation, pid=generation.pid)
        self._lifecycle.ready(profile.protocol_version, downtime)
        if downtime is not None:
            self.condition.recovered()
            self._hooks.happened(Restarted(self._name, self.condition.generation, downtime=downtime))
        self.call_queue.admit(generation.connection, self._hooks.refusal_of)
        self._lifecycle.admitted()
        self._on_settled()

    # While it runs.

    def notified(self, connection: Connection, notification: Notification) -> None:
        maintenance = self._maintenance
        if maintenance is not None and self._is_current(connection):
            maintenance.notified(notification)

    def subscriptions_changed(self) -> None:
        """The client wants to hear other things than before."""
        if (maintenance := self._maintenance) is not None:
            maintenance.subscriptions_changed()

    def expired(self, call: Call) -> None:
        """A call that was handed to the server timed out."""
        if (maintenance := self._maintenance) is not None:
            maintenance.expired(call)

    def due(self, timer: Timer) -> None:
        if timer in (Timer.BACKOFF, Timer.COOLDOWN):
            self._reopen(self.call_queue.reason)
            return
        maintenance = self._maintenance
        assert maintenance is not None, "the timer is cancelled with the connection"
        if timer is Timer.HEALTH:
            self._timers.set(Timer.HEALTH, maintenance.tick())
        else:
            maintenance.list_tools()

    @property
    def _maintenance(self) -> Maintenance | None:
        """What the server that runs needs; None if there is none, or it was lost."""
        current = self.condition.current
        return None if current is None else current.maintenance

    def _is_current(self, connection: Connection) -> bool:
        current = self.condition.current
        return current is not None and current.connection is connection

    def _not_listed(self, error: MCPError) -> None:
        self.condition.last_error = error.message
        logger.warning("tools_list_failed", server=self._name, error=error.message)

    # Losing it.

    def ended(self, connection: Connection) -> None:
        """A server's output ended, its process exited, or it closed its input."""
        if self._is_current(connection) and self._maintenance is not None:
            self._lose(None)

    def _hung(self) -> None:
        logger.warning("server_hung", server=self._name, pid=self.condition.pid)
        timeout = self._settings.health_timeout
        self._lose(CallTimeout(f"it hangs, and answered no probe within {timeout:g} s"), hung=True)

    def _lose(self, error: MCPError | None, *, hung: bool = False) -> None:
        """The server is over: `error` says why; None says that it ended by itself."""
        generation = self.condition.current
        assert generation is not None, "only what runs can be lost"
        was_ready, uptime = generation.ready_since is not None, self.condition.uptime
        self.call_queue.suspend()
        self.condition.missed()
        self._timers.cancel(Timer.HEALTH, Timer.LISTING)
        ending = generation.lose(error)
        reason = f"the server {ending}" if error is None else error.message
        self._lifecycle.lost(loss_reason(error, ending, hung=hung), uptime)
        # Callers learn of it before the cleaning up.
        orphans = generation.connection.close()
        wanted = self.call_queue.take_back(orphans, reason, self._next_id, unauthorized=ending.unauthorized)
        self._server_requests.lost(generation.connection)
        loss = Loss(error, ending, was_ready, wanted, hung)
        if was_ready and self._recovery.may_rest(loss, known=True):
            self.condition.move_to(ServerState.EXITED, _EXITED)
        elif was_ready and self._recovery.restarts:
            self.condition.move_to(ServerState.RESTARTING, reason)
        generation.end(loss, lambda final: self._mailbox.put(Closed(final)))

    # After it has ended.

    def closed(self, final: Ending) -> None:
        """The lost server has been ended, with all that it started."""
        generation = self.condition.current
        assert generation is not None, "what is closed was lost"
        loss = generation.loss
        self.condition.gone()
        now = self._clock.monotonic()
        decision = self._recovery.after(loss, now, known=self.condition.known)
        self._lifecycle.gone(loss.described(final), expected=isinstance(decision, Step))
        self._proceed(decision, now, loss.reason(final.stderr_tail))

    def _proceed(self, decision: Decision, now: float, reason: str) -> None:
        """Do what was decided at `now` about a server that ended or could not be started; `reason` says why it did."""
        match decision:
            case Step.RENEW:
                self._open()
            case Step.RETRY_WITH_INITIALIZE:
                logger.debug("server_died_of_the_probe", server=self._name)
                self._excuse_first_start()
                self._open()
            case Step.LOG_IN:
                self._locked_out(reason)
            case Step.REST:
                self._rest(reason)
            case Retry(delay):
                self._timers.set(Timer.BACKOFF, now + delay)
                self._back_off(delay, reason)
            case OpenCircuit(until):
                self._timers.set(Timer.COOLDOWN, until)
                self.condition.last_error = reason
                self.fail(f"it keeps failing, the last time because {reason}", retry_in=until - now)
            case GiveUp(why):
                self.condition.last_error = reason
                self.fail(reason if why is None else f"{reason} (and {why})")

    def _excuse_first_start(self) -> None:
        if not self.condition.known:
            # Nobody had it before.
            self.condition.not_missed()

    def _rest(self, reason: str) -> None:
        self.condition.last_error = reason
        self.condition.not_missed()
        self.condition.move_to(ServerState.EXITED, _EXITED)
        self._lifecycle.rests()
        if len(self.call_queue) > 0:
            # A call that came before the state was EXITED, or during the termination, could not ask.
            self._mailbox.put(Wanted())

    def _back_off(self, delay: float, reason: str) -> None:
        self.condition.last_error = reason
        self.condition.move_to(ServerState.RESTARTING, reason)
        logger.warning("server_lost", server=self._name, reason=reason, restart_in=delay)
        self._lifecycle.backing_off(delay)

    def fail(self, reason: str, retry_in: float | None = None) -> None:
        """It is not started again, or only in `retry_in` seconds."""
        hint = "" if retry_in is None else f"; the next attempt is in {retry_in:.0f} s"
        self.condition.move_to(ServerState.FAILED, reason + hint)
        logger.error("server_failed", server=self._name, reason=reason, retry_in=retry_in)
        self._lifecycle.gave_up(reason)
        self._hooks.happened(GaveUp(self._name, reason=reason, retry_in=retry_in))
        self._on_settled()

    # Being let in.

    def _may_be_let_in(self) -> bool:
        """Whether a server that let nobody in may have changed its mind. For any thread."""
        return self.condition.known and self._logins.new()

    def _locked_out(self, reason: str) -> None:
        """The server wants a login. Waiting would not change that, so it is not tried again and again."""
        self.condition.last_error = reason
        if self._logins.may_ask:
            self.condition.move_to(ServerState.AUTHORIZING, reason)
            self._logins.ask()
        else:
            self._stay_out(reason)

    def logged_in(self, error: MCPError | None) -> None:
        """A person has logged in, or that came to nothing."""
        if not self._logins.under_way:
            return
        self._logins.over()
        if error is not None:
            self._stay_out(error.message)
            return
        self._excuse_first_start()
        self.condition.move_to(ServerState.RESTARTING if self.condition.known else ServerState.STARTING, _NEW_LOGIN)
        self._open()

    def _stay_out(self, reason: str) -> None:
        """Nobody can be asked, or the login came to nothing."""
        self.condition.last_error = reason
        self._logins.forget()
        self.condition.move_to(ServerState.NEEDS_AUTHORIZATION, reason)
        self._lifecycle.gave_up(reason)
        logger.warning("server_needs_authorization", server=self._name, reason=reason)
        self._on_settled()

    # Stopping.

    def close(self, reason: str) -> None:
        """Stop the server for good, and wait for its end."""
        generation = self.condition.current
        self._lifecycle.closing(self.condition.uptime)
        if generation is not None:
            generation.ready_since = None
        final = Ending()
        try:
            self.condition.move_to(ServerState.CLOSED, reason)
        finally:
            self._logins.abort()
            self.call_queue.suspend()
            if generation is not None:
                for call in generation.connection.close():
                    call.finish(error=CallCancelled(f"server {self._name!r} is closed: {reason}"))
                self._server_requests.lost(generation.connection)
                final = generation.stop()
            self.condition.current = None
            self._lifecycle.closed(final.exit_code, final.signal)
