"""The worker: the event loop that keeps one server alive.

A worker is one thread with one mailbox. It starts the server, runs the handshake, notices the end, waits out the
backoff, starts it again, checks an idle server's health, and finally stops it. It never waits for an answer of the
server, nor for its end: the news come as letters. Callers' threads only touch the intake, the connection that is ready,
and the mailbox.

A worker lives once, from `start` to `stop`; connecting again after that takes a new worker.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
from collections.abc import Callable
from typing import Any

from gaia.log import get_logger, mask_secrets_of
from gaia.mcp.client.observation.lifecycle import Lifecycle
from gaia.mcp.client.observation.requests import Observer, Run
from gaia.mcp.client.protocol.dialect import UNDECIDED, Dialect
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Connection, ConnectionState, Noise
from gaia.mcp.client.supervision.conversation import Conversations
from gaia.mcp.client.supervision.events import GaveUp, Restarted, ServerState, StateChanged
from gaia.mcp.client.supervision.farewell import Farewell, Loss, loss_reason
from gaia.mcp.client.supervision.gathering import Gathering
from gaia.mcp.client.supervision.intake import Intake
from gaia.mcp.client.supervision.lifetime import live_workers
from gaia.mcp.client.supervision.login import Logins
from gaia.mcp.client.supervision.mailbox import (
    Answered,
    Closed,
    Ended,
    Expired,
    InterestsChanged,
    Letter,
    LoggedIn,
    Notified,
    Start,
    Stop,
    Wanted,
    Watch,
)
from gaia.mcp.client.supervision.notices import Notices
from gaia.mcp.client.supervision.policy import OpenCircuit, RestartTracker
from gaia.mcp.client.supervision.questions import Question, Questions
from gaia.mcp.client.supervision.settings import WorkerHooks, WorkerSettings
from gaia.mcp.client.supervision.timers import Timer, Timers, Waiting
from gaia.mcp.client.supervision.tool_listing import open_and_list
from gaia.mcp.client.supervision.upkeep import Upkeep
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.errors import CallCancelled, CallTimeout, MCPError
from gaia.telemetry import metrics

__all__ = ["Worker"]

logger = get_logger(__name__)

_GRACE_SECONDS = 2.0
"""How long a server that we stop may take to leave after the end of its input."""

_EXIT_REPORT_SECONDS = 0.2
"""After the end of a server's output its exit status follows at once, unless it only closed its output."""

_STOP_SECONDS = 30.0
"""More than the longest orderly shutdown takes."""

_DISCONNECTED = "it was disconnected"
_NEW_LOGIN = "there is a new login"
_EXITED = "it exited by itself; the next call starts it again"


class Worker:
    """Supervises one server. The public methods and attributes may be used from any thread."""

    def __init__(
        self,
        name: str,
        transport: ChannelTransport,
        settings: WorkerSettings,
        hooks: WorkerHooks,
        questions: Questions,
        clock: Clock,
        rng: random.Random,
        observer: Observer | None = None,
        run: Run = lambda task: task(),
    ) -> None:
        """`observer` sees the calls, and is told of the server's life; `run` has time for what that may take."""
        self.name = name
        self.observer = observer or Observer(name)
        self.profile: ServerProfile | None = None
        """What the server told about itself in its last handshake."""
        self.generation = 0
        self.restarts = 0
        self.last_error: str | None = None
        self.disowned = False
        """Whether this is a forked child, to which neither thread nor server belongs."""
        self._mailbox: queue.SimpleQueue[Letter] = queue.SimpleQueue()
        post = self._mailbox.put
        self.intake = Intake(
            name,
            settings.max_pending,
            on_wanted=lambda: post(Wanted()),
            on_expired=lambda call: post(Expired(call)),
            may_be_let_in=self._may_be_let_in,
        )
        self._logins = Logins(name, transport.authorization, lambda error: post(LoggedIn(error)))
        self._transport = transport
        self._settings = settings
        self._hooks = hooks
        self._questions = questions
        self._clock = clock
        self.next_id: Callable[[], int] = itertools.count(1).__next__
        """The id of the next request. For any thread."""
        self._settled = threading.Event()
        """Set when the first start has succeeded or failed."""
        self._thread = threading.Thread(target=self._run, name=f"mcp-{name}-worker", daemon=True)

        # Only the worker thread writes these; other threads read single values.
        self._connection: Connection | None = None
        self._ready_since: float | None = None
        self._earlier_noise = Noise()

        # Only the worker thread touches these.
        self._run_elsewhere = run
        self._lifecycle = Lifecycle(self.observer, run)
        self._down_since: float | None = None
        self._upkeep: Upkeep | None = None
        self._farewell: Farewell | None = None
        """While the lost server is being ended; nothing is started before that is done."""
        self._tracker = RestartTracker(settings.policy, rng)
        self._timers = Timers()
        self._conversations = Conversations(
            clock, settings.ready_timeout, self.next_id, self._timers.watch, lambda *news: post(Answered(*news))
        )

    @property
    def state(self) -> ServerState:
        return self.intake.state

    @property
    def pid(self) -> int | None:
        connection = self._connection
        return None if connection is None or connection.channel is None else connection.channel.pid

    @property
    def dialect(self) -> Dialect:
        """What requests have to be dressed like, as far as it is known; a connection mends what was guessed wrong."""
        connection = self._connection
        return UNDECIDED if connection is None else connection.dialect

    @property
    def uptime(self) -> float | None:
        since = self._ready_since
        return None if since is None else self._clock.monotonic() - since

    @property
    def queued(self) -> int:
        return len(self.intake)

    @property
    def in_flight(self) -> int:
        ready = self.intake.ready
        return 0 if ready is None else ready.in_flight

    @property
    def noise(self) -> Noise:
        """Over all generations."""
        connection = self._connection
        return self._earlier_noise if connection is None else self._earlier_noise.plus(connection.noise)

    def start(self) -> bool:
        """Start the server and wait until it is ready or has failed; True if it is ready."""
        self._lifecycle.requested()
        live_workers.add(self)
        metrics.observed.add(self)
        self._mailbox.put(Start())
        try:
            self._thread.start()
        except RuntimeError as error:
            live_workers.discard(self)
            self.last_error = f"no thread for the server: {error}"
            self._fail(self.last_error, retry_in=None)
        self._settled.wait()
        return self.state is ServerState.READY

    def stop(self) -> None:
        """Stop the server and end the thread. Waiting calls end as cancelled. May be called more than once."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            logger.error("worker_stuck", server=self.name)
        elif self.state not in (ServerState.CREATED, ServerState.CLOSED):
            # The first start had failed, and the thread had ended with it or never begun.
            self._set_state(ServerState.CLOSED, _DISCONNECTED)

    def request_stop(self) -> None:
        """Like `stop`, without waiting for it."""
        self._lifecycle.requested()
        self._mailbox.put(Stop())

    def disown(self) -> None:
        """In a forked child: the thread is gone, and the server belongs to the parent."""
        self.disowned = True
        self.intake.disown()
        self._connection = self._ready_since = None

    def interests_changed(self) -> None:
        """The client wants to hear other things than before."""
        self._mailbox.put(InterestsChanged())

    def watch(self, waiting: Waiting) -> None:
        """Enforce the deadline of a call or a question that no thread waits for."""
        if not waiting.ended:
            self._mailbox.put(Watch(waiting))

    # The event loop. Everything below runs on the worker thread.

    def _run(self) -> None:
        try:
            while self.state is not ServerState.CLOSED and not self._failed_for_good():
                deadline = self._timers.next_deadline()
                if deadline is not None and deadline <= self._clock.monotonic():
                    # However many letters there are: deadlines are kept.
                    self._fire_timers()
                    continue
                try:
                    letter = self._clock.get(self._mailbox, deadline)
                except queue.Empty:
                    continue
                self._handle(letter)
            self._close_conversations()
        except Exception as error:
            # A mistake of ours must not leave callers waiting, nor the server running.
            logger.error("worker_broken", server=self.name, error=repr(error))
            self.last_error = f"internal error: {error!r}"
            self._close(self.last_error)
            raise
        finally:
            live_workers.discard(self)
            metrics.observed.discard(self)
            self._settled.set()

    def _failed_for_good(self) -> bool:
        """A server that was never ready is not retried; its worker ends, and a new connect() makes a new one."""
        return self.state in (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION) and self.profile is None

    def _close_conversations(self) -> None:
        """Let those that were interrupted take note of it; nothing comes of them any more."""
        with contextlib.suppress(queue.Empty):
            while True:
                match self._mailbox.get_nowait():
                    case Answered(conversation, call):
                        conversation.answered(call)

    def _handle(self, letter: Letter) -> None:
        match letter:
            case Start():
                self._begin()
            case Stop():
                self._close(_DISCONNECTED)
            case Wanted() if self._farewell is None:
                self._wanted()
            case LoggedIn(error) if self._logins.under_way:
                self._logged_in(error)
            case Ended(connection) if connection is self._connection and self._farewell is None:
                self._lose(None)
            case Closed(connection, ending):
                self._lost(connection, ending)
            case Answered(conversation, call):
                conversation.answered(call)
            case Watch(waiting):
                self._timers.watch(waiting)
            case InterestsChanged() if self._upkeep is not None:
                self._upkeep.interests_changed()
            case Expired(call) if self._upkeep is not None:
                self._upkeep.expired(call)
            case Notified(connection, notification) if self._upkeep is not None and connection is self._connection:
                self._upkeep.notified(notification)

    def _fire_timers(self) -> None:
        timers, late = self._timers.due(self._clock.monotonic())
        for waiting in late:
            if isinstance(waiting, Call):
                self.intake.expire(waiting)
            elif isinstance(waiting, Question | Gathering):
                waiting.expire()
        for timer in timers:
            if timer is Timer.HEALTH:
                assert self._upkeep is not None, "the timer is cancelled with the connection"
                self._timers.set(Timer.HEALTH, self._upkeep.tick())
            elif timer is Timer.LISTING:
                assert self._upkeep is not None, "the timer is cancelled with the connection"
                self._upkeep.list_tools()
            else:
                self._set_state(ServerState.RESTARTING, self.intake.reason)
                self._open()

    # Starting.

    def _begin(self) -> None:
        self._logins.allow()
        self._set_state(ServerState.STARTING)
        self._open()

    def _wanted(self) -> None:
        if self.state is ServerState.EXITED:
            # Nobody has missed it until now.
            self._down_since = self._clock.monotonic()
            self._set_state(ServerState.RESTARTING, "a call came")
            self._open()
        elif self.state is ServerState.NEEDS_AUTHORIZATION and self._may_be_let_in():
            self._set_state(ServerState.RESTARTING, _NEW_LOGIN)
            self._open()

    def _open(self) -> None:
        self.generation += 1
        notices = Notices(self._mailbox, self._questions)
        connection = Connection(
            self.name,
            self.generation,
            self._clock,
            max_pending=self._settings.max_pending,
            on_notification=lambda notification: notices.received(connection, notification),
            on_ended=lambda ended: self._mailbox.put(Ended(ended)),
            on_request=lambda request: self._questions.asked(connection, request, self.watch),
            observer=self.observer.anew(),
            run=self._run_elsewhere,
            on_lost=lambda call, _: self.intake.repeat(call, self.next_id),
        )
        self._lifecycle.opening(self.generation)
        try:
            channel = self._transport.open(connection, self.name)
        except MCPError as error:
            self._lifecycle.not_spawned(error.message)
            self._not_running(error.message)
            return
        connection.attach(channel)
        self.observer.redact = connection.redact
        self.observer.session_id = lambda: connection.session_id
        mask_secrets_of(channel)
        self._lifecycle.spawned(channel.pid)
        self._connection = connection
        logger.debug("server_started", server=self.name, generation=self.generation, pid=channel.pid)
        converse = self._conversations.on(connection)
        self._upkeep = Upkeep(
            connection,
            converse,
            notices,
            self._settings,
            self._hooks,
            self._clock,
            self._hung,
            self._not_listed,
            lambda at: self._timers.set(Timer.LISTING, at),
        )
        opening = open_and_list(self._settings.negotiation, self._settings.identity, self._not_listed)
        converse(opening, lambda outcome: self._opened(connection, *outcome), self._lose)

    def _opened(self, connection: Connection, profile: ServerProfile, tools: list[Any]) -> None:
        assert self._upkeep is not None, "the connection is the current one"
        self.profile = profile.masked(connection.redact)
        now = self._clock.monotonic()
        connection.move_to(ConnectionState.READY)
        self._ready_since = now
        self._tracker.on_ready(now)
        self._timers.set(Timer.HEALTH, self._upkeep.begin(profile, tools))
        self._logins.forget()
        self._set_state(ServerState.READY)
        downtime = None if self._down_since is None else now - self._down_since
        # All of it before the calls that waited are sent: whoever has an answer may look at once.
        logger.info("server_ready", server=self.name, generation=self.generation, pid=self.pid)
        self._lifecycle.ready(profile.protocol_version, downtime)
        if downtime is not None:
            self.restarts += 1
            self._hooks.happened(Restarted(self.name, self.generation, downtime=downtime))
            self._down_since = None
        self.intake.admit(connection, self._hooks.refusal)
        self._lifecycle.admitted()
        self._settled.set()

    # Ending.

    def _lose(self, error: MCPError | None, *, hung: bool = False) -> None:
        """The current connection is over: `error` says why; None says that the server ended it."""
        connection = self._connection
        assert connection is not None, "only a current connection can be lost"
        channel = connection.channel
        assert channel is not None, "a connection becomes current with its channel"
        was_ready, uptime = self._ready_since is not None, self.uptime
        self.intake.suspend()
        self._ready_since = None
        if self._down_since is None:
            self._down_since = self._clock.monotonic()
        self._timers.cancel(Timer.HEALTH)
        self._timers.cancel(Timer.LISTING)
        self._upkeep = None
        # An exit that we force, later, says nothing about the server.
        ending = (channel.ending(_EXIT_REPORT_SECONDS) if error is None else None) or Ending()
        reason = f"the server {ending}" if error is None else error.message
        self._lifecycle.lost(loss_reason(error, ending, hung=hung), uptime)
        # Callers learn of it before the cleaning up.
        wanted = self.intake.take_back(connection.close(), reason, self.next_id, unauthorized=ending.unauthorized)
        self._questions.lost(connection)
        loss = Loss(error, ending, was_ready, wanted, hung)
        if was_ready and self._may_rest(loss):
            self._set_state(ServerState.EXITED, _EXITED)
        elif was_ready and self._settings.policy.restart != "never":
            self._set_state(ServerState.RESTARTING, reason)
        grace = 0.0 if hung else _GRACE_SECONDS
        self._farewell = Farewell(
            self.name, channel, loss, grace, lambda final: self._mailbox.put(Closed(connection, final))
        )

    def _lost(self, connection: Connection, final: Ending) -> None:
        """The server of the lost connection has been ended."""
        assert self._farewell is not None, "what is closed was lost"
        loss = self._farewell.loss
        self._connection = self._farewell = None
        self._earlier_noise = self._earlier_noise.plus(connection.noise)
        may_renew = loss.was_ready and loss.ending.renewable and self._tracker.may_renew(self._clock.monotonic())
        died_of_the_probe = loss.died_while_opening and self._settings.negotiation.died_of_the_probe()
        may_rest = self._may_rest(loss)
        expected = died_of_the_probe or may_rest or may_renew or loss.unauthorized
        self._lifecycle.gone(loss.described(final), expected=expected)
        if may_renew:
            self._open()
        elif died_of_the_probe:
            logger.debug("server_died_of_the_probe", server=self.name)
            if self.profile is None:
                # Nobody had it before, so nobody missed it.
                self._down_since = None
            self._open()
        elif loss.unauthorized:
            self._locked_out(loss.reason())
        elif may_rest:
            self._rest(loss.reason(final.stderr_tail))
        else:
            self._not_running(loss.reason(final.stderr_tail))

    def _may_rest(self, loss: Loss) -> bool:
        """Whether the server has left by itself, properly, while nobody wanted anything."""
        restart = self._settings.policy.restart
        return restart == "on-failure" and self.profile is not None and loss.ending.clean and not loss.wanted

    def _rest(self, reason: str) -> None:
        self.last_error = reason
        self._set_state(ServerState.EXITED, _EXITED)
        self._lifecycle.rests()
        if len(self.intake) > 0:
            # A call that came before the state was EXITED, or during the farewell, could not ask.
            self._mailbox.put(Wanted())

    def _not_running(self, reason: str) -> None:
        """The server ended, or could not be started. Decide what happens next."""
        self.last_error = reason
        if self.profile is None:
            self._fail(reason, retry_in=None)
        elif self._settings.policy.restart == "never":
            self._fail(f"{reason} (and its restart policy is 'never')", retry_in=None)
        else:
            self._schedule_restart(reason)

    def _schedule_restart(self, reason: str) -> None:
        now = self._clock.monotonic()
        decision = self._tracker.on_end(now)
        if isinstance(decision, OpenCircuit):
            self._timers.set(Timer.COOLDOWN, decision.until)
            self._fail(f"it keeps failing, the last time because {reason}", retry_in=decision.until - now)
        else:
            self._timers.set(Timer.BACKOFF, now + decision.delay)
            self._set_state(ServerState.RESTARTING, reason)
            logger.warning("server_lost", server=self.name, reason=reason, restart_in=decision.delay)
            self._lifecycle.backing_off(decision.delay)

    def _fail(self, reason: str, retry_in: float | None) -> None:
        hint = "" if retry_in is None else f"; the next attempt is in {retry_in:.0f} s"
        self._set_state(ServerState.FAILED, reason + hint)
        logger.error("server_failed", server=self.name, reason=reason, retry_in=retry_in)
        self._lifecycle.gave_up(reason)
        self._hooks.happened(GaveUp(self.name, reason=reason, retry_in=retry_in))
        self._settled.set()

    # Being let in.

    def _may_be_let_in(self) -> bool:
        """Whether a server that let nobody in may have changed its mind. For any thread."""
        return self.profile is not None and self._logins.new()

    def _locked_out(self, reason: str) -> None:
        """The server wants a login. Waiting would not change that, so it is not tried again and again."""
        self.last_error = reason
        if self._logins.may_ask:
            self._set_state(ServerState.AUTHORIZING, reason)
            self._logins.ask()
        else:
            self._stay_out(reason)

    def _logged_in(self, error: MCPError | None) -> None:
        self._logins.over()
        if error is not None:
            self._stay_out(error.message)
        elif self.profile is None:
            # Nobody had it before, so nobody missed it.
            self._down_since = None
            self._set_state(ServerState.STARTING, _NEW_LOGIN)
            self._open()
        else:
            self._set_state(ServerState.RESTARTING, _NEW_LOGIN)
            self._open()

    def _stay_out(self, reason: str) -> None:
        """Nobody can be asked, or the login came to nothing."""
        self.last_error = reason
        self._logins.forget()
        self._set_state(ServerState.NEEDS_AUTHORIZATION, reason)
        self._lifecycle.gave_up(reason)
        logger.warning("server_needs_authorization", server=self.name, reason=reason)
        self._settled.set()

    def _close(self, reason: str) -> None:
        connection = self._connection
        self._lifecycle.closing(self.uptime)
        self._ready_since = None
        final = Ending()
        try:
            self._set_state(ServerState.CLOSED, reason)
        finally:
            self._logins.abort()
            self.intake.suspend()
            if connection is not None:
                for call in connection.close():
                    call.finish(error=CallCancelled(f"server {self.name!r} is closed: {reason}"))
                self._questions.lost(connection)
                if self._farewell is not None:
                    self._farewell.wait()
                elif connection.channel is not None:
                    final = connection.channel.close(_GRACE_SECONDS)
            self._connection = None
            self._lifecycle.closed(final.exit_code, final.signal)

    # While it runs.

    def _not_listed(self, error: MCPError) -> None:
        self.last_error = error.message
        logger.warning("tools_list_failed", server=self.name, error=error.message)

    def _hung(self) -> None:
        logger.warning("server_hung", server=self.name, pid=self.pid)
        timeout = self._settings.health_timeout
        self._lose(CallTimeout(f"it hangs, and answered no probe within {timeout:g} s"), hung=True)

    def _set_state(self, new: ServerState, reason: str | None = None) -> None:
        old = self.intake.move_to(new, reason)
        if old is not new:
            self._hooks.happened(StateChanged(self.name, old, new, self.generation, reason))
