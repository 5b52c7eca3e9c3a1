"""The worker: the event loop that keeps one server alive.

A worker is one thread with one mailbox. It starts the server, runs the handshake, notices the end, waits out the
backoff, starts it again, checks an idle server's health, and finally stops it. It never waits for an answer of the
server: answers come back as letters. Callers' threads only touch the intake, the connection that is ready, and the
mailbox.

A worker lives once, from `start` to `stop`; connecting again after that takes a new worker.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from gaia.log import get_logger
from gaia.mcp.client.protocol.era import ClientIdentity, Era, ServerProfile
from gaia.mcp.client.protocol.exchange import Exchange
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Connection, ConnectionState, Noise
from gaia.mcp.client.supervision.conversation import Conversation
from gaia.mcp.client.supervision.events import Event, GaveUp, Restarted, ServerLog, ServerState, StateChanged
from gaia.mcp.client.supervision.health import HealthCheck
from gaia.mcp.client.supervision.intake import Intake
from gaia.mcp.client.supervision.lifetime import live_workers
from gaia.mcp.client.supervision.mailbox import (
    Answered,
    Ended,
    GivenUp,
    Letter,
    Notified,
    Start,
    Stop,
    Wanted,
    Watch,
)
from gaia.mcp.client.supervision.policy import OpenCircuit, RestartPolicy, RestartTracker
from gaia.mcp.client.supervision.timers import Timer, Timers
from gaia.mcp.client.supervision.tool_listing import ToolListing
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.errors import CallCancelled, CallTimeout, InvalidResponse, JsonRpcError, MCPError, ServerCrashed

__all__ = ["Worker", "WorkerHooks", "WorkerSettings"]

logger = get_logger(__name__)

T = TypeVar("T")

_GRACE_SECONDS = 2.0
"""How long a server that we stop may take to leave after the end of its input."""

_EXIT_REPORT_SECONDS = 0.2
"""After the end of a server's output its exit status follows at once, unless it only closed its output."""

_STOP_SECONDS = 30.0
"""More than the longest orderly shutdown takes."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds."""

    identity: ClientIdentity
    era: Era
    ready_timeout: float
    policy: RestartPolicy
    health_interval: float
    health_timeout: float
    max_pending: int


class WorkerHooks(Protocol):
    """What the worker tells its client, on the worker thread. Implementations are ours: quick, and never raise."""

    def tools_listed(self, definitions: list[Any]) -> None: ...

    def happened(self, event: Event) -> None: ...


class Worker:
    """Supervises one server. The public methods and attributes may be used from any thread."""

    def __init__(
        self,
        name: str,
        transport: ChannelTransport,
        settings: WorkerSettings,
        hooks: WorkerHooks,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.name = name
        self.profile: ServerProfile | None = None
        """What the server told about itself in its last handshake."""
        self.generation = 0
        self.restarts = 0
        self.last_error: str | None = None
        self.intake = Intake(name, settings.max_pending, on_wanted=lambda: self._mailbox.put(Wanted()))
        self._transport = transport
        self._settings = settings
        self._hooks = hooks
        self._clock = clock
        self._mailbox: queue.SimpleQueue[Letter] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self._settled = threading.Event()
        """Set when the first start has succeeded or failed."""
        self._thread = threading.Thread(target=self._run, name=f"mcp-{name}-worker", daemon=True)

        # Only the worker thread writes these; other threads read single values.
        self._connection: Connection | None = None
        self._ready_since: float | None = None
        self._earlier_noise = Noise()

        # Only the worker thread touches these.
        self._down_since: float | None = None
        self._tracker = RestartTracker(settings.policy, rng)
        self._timers = Timers()
        self._health: HealthCheck | None = None
        self._tools: ToolListing | None = None

    @property
    def state(self) -> ServerState:
        return self.intake.state

    @property
    def pid(self) -> int | None:
        connection = self._connection
        return None if connection is None or connection.channel is None else connection.channel.pid

    @property
    def uptime(self) -> float | None:
        since = self._ready_since
        return None if since is None else self._clock.monotonic() - since

    @property
    def noise(self) -> Noise:
        """Over all generations."""
        connection = self._connection
        return self._earlier_noise if connection is None else self._earlier_noise.plus(connection.noise)

    def start(self) -> bool:
        """Start the server and wait until it is ready or has failed; True if it is ready."""
        live_workers.add(self)
        self._mailbox.put(Start())
        self._thread.start()
        self._settled.wait()
        return self.state is ServerState.READY

    def stop(self) -> None:
        """Stop the server and end the thread. Waiting calls end as cancelled. May be called more than once."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def request_stop(self) -> None:
        """Like `stop`, without waiting for it."""
        self._mailbox.put(Stop())

    def disown(self) -> None:
        """In a forked child: the thread is gone, and the server belongs to the parent."""
        self.intake.disown()

    def next_id(self) -> int:
        return next(self._ids)

    def watch(self, call: Call) -> None:
        """Enforce the deadline of a call that no thread waits for."""
        self._mailbox.put(Watch(call))

    def expire(self, call: Call) -> bool:
        """End a call whose deadline has passed. False if it ended just before."""
        return self._give_up(call, CallTimeout(f"{call.method} was not answered within {call.timeout:g} s"), "timeout")

    def cancel(self, call: Call, reason: str) -> bool:
        """End a call that its caller no longer wants. False if it ended just before."""
        return self._give_up(call, CallCancelled(reason), reason)

    def _give_up(self, call: Call, error: MCPError, reason: str) -> bool:
        if not call.finish(error=error):
            return False
        connection = self.intake.ready
        if connection is not None:
            connection.abandon(call, reason)
            if not call.bound:
                self._mailbox.put(GivenUp(call))
        return True

    # The event loop. Everything below runs on the worker thread.

    def _run(self) -> None:
        try:
            while self.state is not ServerState.CLOSED and not self._failed_for_good():
                try:
                    letter = self._clock.get(self._mailbox, self._timers.next_deadline())
                except queue.Empty:
                    self._fire_timers()
                else:
                    self._handle(letter)
        except Exception as error:
            # A mistake of ours must not leave callers waiting, nor the server running.
            logger.error("worker_broken", server=self.name, error=repr(error))
            self._fail(f"internal error: {error!r}", retry_in=None)
            self._close()
            raise
        finally:
            live_workers.discard(self)

    def _failed_for_good(self) -> bool:
        """A server that was never ready is not retried; its worker ends, and a new connect() makes a new one."""
        return self.state is ServerState.FAILED and self.profile is None

    def _handle(self, letter: Letter) -> None:
        match letter:
            case Start():
                self._set_state(ServerState.STARTING)
                self._open()
            case Stop():
                self._close()
            case Wanted() if self.state is ServerState.EXITED:
                self._set_state(ServerState.RESTARTING, "a call came")
                self._open()
            case Ended(connection) if connection is self._connection:
                self._lose(None)
            case Answered(conversation, call):
                conversation.answered(call)
            case Watch(call):
                self._timers.watch(call)
            case GivenUp(call) if self._health is not None:
                self._health.suspect(call)
            case Notified(connection, notification) if connection is self._connection:
                self._notified(connection, notification)

    def _fire_timers(self) -> None:
        timers, calls = self._timers.due(self._clock.monotonic())
        for call in calls:
            self.expire(call)
        for timer in timers:
            if timer is Timer.HEALTH:
                assert self._health is not None, "the timer is cancelled with the connection"
                self._timers.set(Timer.HEALTH, self._health.tick())
            else:
                self._set_state(ServerState.RESTARTING, self.intake.reason)
                self._open()

    # Starting.

    def _open(self) -> None:
        self.generation += 1
        connection = Connection(
            self.name,
            self.generation,
            self._clock,
            max_pending=self._settings.max_pending,
            on_notification=lambda notification: self._mailbox.put(Notified(connection, notification)),
            on_ended=lambda ended: self._mailbox.put(Ended(ended)),
        )
        try:
            channel = self._transport.open(connection, self.name)
        except MCPError as error:
            self._after_end(Ending(), error.message, wanted=True)
            return
        connection.attach(channel)
        self._connection = connection
        logger.debug("server_started", server=self.name, generation=self.generation, pid=channel.pid)
        self._converse(self._opening(), self._opened, self._lose)

    def _opening(self) -> Exchange[tuple[ServerProfile, list[Any]]]:
        era = self._settings.era
        profile = yield from era.open(self._settings.identity)
        try:
            tools = yield from era.list_tools(profile)
        except (JsonRpcError, InvalidResponse) as error:
            # The server works, only its list does not; calls by name may still succeed.
            self._not_listed(error)
            tools = []
        return profile, tools

    def _opened(self, outcome: tuple[ServerProfile, list[Any]]) -> None:
        connection = self._connection
        assert connection is not None, "an outcome only comes while its connection is the current one"
        self.profile, tools = outcome
        now = self._clock.monotonic()
        connection.move_to(ConnectionState.READY)
        self._ready_since = now
        self._tracker.on_ready(now)
        self._look_after(connection, self.profile)
        self._timers.set(Timer.HEALTH, now + self._settings.health_interval)
        self._hooks.tools_listed(tools)
        self._set_state(ServerState.READY)
        self.intake.admit(connection)
        if self._down_since is not None:
            self.restarts += 1
            self._hooks.happened(Restarted(self.name, self.generation, downtime=now - self._down_since))
            self._down_since = None
        logger.info("server_ready", server=self.name, generation=self.generation, pid=self.pid)
        self._settled.set()

    def _look_after(self, connection: Connection, profile: ServerProfile) -> None:
        settings = self._settings
        self._health = HealthCheck(
            connection,
            settings.era,
            self._clock,
            self._converse,
            self._hung,
            interval=settings.health_interval,
            timeout=settings.health_timeout,
        )
        self._tools = ToolListing(settings.era, profile, self._converse, self._hooks.tools_listed, self._not_listed)

    # Ending.

    def _lose(self, error: MCPError | None, *, hung: bool = False) -> None:
        """The current connection is over: `error` says why; None says that the server ended it."""
        connection, self._connection = self._connection, None
        assert connection is not None, "only a current connection can be lost"
        channel = connection.channel
        assert channel is not None, "a connection becomes current with its channel"
        was_ready = self._ready_since is not None
        self.intake.suspend()
        self._ready_since = None
        self._down_since = self._down_since or self._clock.monotonic()
        self._timers.cancel(Timer.HEALTH)
        self._health = self._tools = None
        # Callers learn of it before the cleaning up, which may take seconds.
        ending = channel.ending(_EXIT_REPORT_SECONDS) if error is None else None
        reason = f"the server {ending or Ending()}" if error is None else error.message
        wanted = self._keep_or_fail(connection.close(), reason)
        if was_ready and self._settings.policy.restart != "never":
            self._set_state(ServerState.RESTARTING, reason)
        final = channel.close(0.0 if hung else _GRACE_SECONDS)
        self._earlier_noise = self._earlier_noise.plus(connection.noise)
        if error is not None and not was_ready and final.stderr_tail:
            reason = f"{reason}; the server last wrote on stderr:\n{final.stderr_tail}"
        # An exit that we forced, as opposed to `ending`, says nothing about the server.
        self._after_end(ending or Ending(), reason, wanted=wanted)

    def _keep_or_fail(self, orphans: list[Call], reason: str) -> bool:
        """Decide about the calls of a lost connection; True if somebody wanted something of the server."""
        kept = []
        for call in orphans:
            if call.bound or (call.written and not call.repeatable):
                crash = f"server {self.name!r} was lost during {call.method}: {reason}"
                call.finish(error=ServerCrashed(crash))
            else:
                if call.written:
                    call.prepare_repeat(self.next_id())
                kept.append(call)
        self.intake.put_back(kept)
        return len(self.intake) > 0 or any(not call.bound for call in orphans)

    def _after_end(self, ending: Ending, reason: str, *, wanted: bool) -> None:
        """Nothing runs now. Decide what happens next."""
        self.last_error = reason
        policy = self._settings.policy
        if self.profile is None:
            self._fail(reason, retry_in=None)
        elif policy.restart == "never":
            self._fail(f"{reason} (and its restart policy is 'never')", retry_in=None)
        elif policy.restart == "on-failure" and ending.clean and not wanted:
            self._set_state(ServerState.EXITED, "it exited by itself; the next call starts it again")
            if len(self.intake) > 0:
                # A call that came before the state was EXITED did not know that it had to ask.
                self._mailbox.put(Wanted())
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

    def _fail(self, reason: str, retry_in: float | None) -> None:
        hint = "" if retry_in is None else f"; the next attempt is in {retry_in:.0f} s"
        self._set_state(ServerState.FAILED, reason + hint)
        logger.error("server_failed", server=self.name, reason=reason, retry_in=retry_in)
        self._hooks.happened(GaveUp(self.name, reason=reason, retry_in=retry_in))
        self._settled.set()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._ready_since = None
        self._set_state(ServerState.CLOSED, "it was disconnected")
        self.intake.suspend()
        if connection is not None:
            for call in connection.close():
                call.finish(error=CallCancelled(f"server {self.name!r} was disconnected"))
            if connection.channel is not None:
                connection.channel.close(_GRACE_SECONDS)
        self._settled.set()

    # While it runs.

    def _notified(self, connection: Connection, notification: Notification) -> None:
        params = notification.params
        if notification.method == "notifications/tools/list_changed":
            if self._tools is not None:
                self._tools.refresh()
        elif notification.method == "notifications/message":
            level, source = str(params.get("level", "info")), params.get("logger")
            text = connection.redact(str(params.get("data")))
            logger.info("server_log", server=self.name, level=level, source=source, text=text)
            self._hooks.happened(
                ServerLog(self.name, level, None if source is None else str(source), params.get("data"))
            )

    def _not_listed(self, error: MCPError) -> None:
        self.last_error = error.message
        logger.warning("tools_list_failed", server=self.name, error=error.message)

    def _hung(self) -> None:
        logger.warning("server_hung", server=self.name, pid=self.pid)
        timeout = self._settings.health_timeout
        self._lose(CallTimeout(f"it hangs, and answered no probe within {timeout:g} s"), hung=True)

    def _converse(
        self, exchange: Exchange[T], on_result: Callable[[T], None], on_error: Callable[[MCPError], None]
    ) -> None:
        """Run `exchange` on the current connection; its outcome is dropped if the connection is lost meanwhile."""
        connection = self._connection
        assert connection is not None, "exchanges are only begun while there is a connection"
        limit = self._clock.monotonic() + self._settings.ready_timeout

        def make_call(
            conversation: Conversation[T], method: str, params: dict[str, Any] | None, timeout: float | None
        ) -> Call:
            now = self._clock.monotonic()
            call = Call(
                self.next_id(),
                method,
                params,
                now,
                max(0.0, limit - now) if timeout is None else timeout,
                bound=True,
                on_done=lambda done: self._mailbox.put(Answered(conversation, done)),
            )
            self._timers.watch(call)
            return call

        Conversation(
            exchange,
            connection,
            make_call,
            lambda result: on_result(result) if connection is self._connection else None,
            lambda error: on_error(error) if connection is self._connection else None,
        ).start()

    def _set_state(self, new: ServerState, reason: str | None = None) -> None:
        old = self.intake.move_to(new, reason)
        if old is not new:
            self._hooks.happened(StateChanged(self.name, old, new, self.generation, reason))
