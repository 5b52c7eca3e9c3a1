"""The supervisor: one thread, one mailbox, and the event loop that keeps one server alive.

It starts the server, runs the handshake, notices the end, waits out the backoff, starts it again, checks an idle
server's health, and finally stops it; how, is told by the `Supervisor`. It never waits for an answer of the server, nor
for its end: the news come as letters. Callers' threads only touch the call queue, the connection that is ready, and the
mailbox.

A supervisor lives once, from `start` to `stop`; connecting again after that takes a new supervisor.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
from collections.abc import Callable

from gaia.log import get_logger
from gaia.mcp.client.observation.request_spans import Executor, Observer
from gaia.mcp.client.protocol.negotiated_protocol import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.supervision.events import ServerState
from gaia.mcp.client.supervision.input_requests import InputRequests
from gaia.mcp.client.supervision.lifetime import live_supervisors
from gaia.mcp.client.supervision.mailbox import (
    Answered,
    Closed,
    Ended,
    Expired,
    Letter,
    LoggedIn,
    Notified,
    Start,
    Stop,
    SubscriptionsChanged,
    Wanted,
    Watch,
)
from gaia.mcp.client.supervision.server_lifecycle import ServerLifecycle
from gaia.mcp.client.supervision.server_requests import ServerRequest, ServerRequests
from gaia.mcp.client.supervision.settings import SupervisionHooks, SupervisionSettings
from gaia.mcp.client.supervision.timers import Timers, Waiting
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.telemetry import metrics

__all__ = ["ServerLifecycle"]

logger = get_logger(__name__)

_STOP_SECONDS = 30.0
"""More than the longest orderly shutdown takes."""

_DISCONNECTED = "it was disconnected"


class Supervisor:
    """Supervises one server. The public methods and attributes may be used from any thread."""

    def __init__(
        self,
        name: str,
        transport: ChannelTransport,
        settings: SupervisionSettings,
        hooks: SupervisionHooks,
        server_requests: ServerRequests,
        clock: Clock,
        rng: random.Random,
        observer: Observer | None = None,
        executor: Executor = lambda task: task(),
    ) -> None:
        """`observer` sees the calls, and is told of the server's life; `run` has time for what that may take."""
        self.name = name
        self.observer = observer or Observer(name)
        self.next_id: Callable[[], int] = itertools.count(1).__next__
        """The id of the next request."""
        self.forked = False
        """Whether this is a forked child, to which neither thread nor server belongs."""
        self._clock = clock
        self._mailbox: queue.SimpleQueue[Letter] = queue.SimpleQueue()
        self._settled = threading.Event()
        """Set when the first start has succeeded or failed."""
        self._thread = threading.Thread(target=self._run, name=f"mcp-{name}-supervisor", daemon=True)
        self._timers = Timers()
        """Only the supervisor's thread touches them."""
        self._lifecycle = ServerLifecycle(
            name,
            transport,
            settings,
            hooks,
            server_requests,
            clock,
            rng,
            self.observer,
            executor,
            mailbox=self._mailbox,
            timers=self._timers,
            next_id=self.next_id,
            watch=self.watch,
            on_settled=self._settled.set,
        )
        self.condition = self._lifecycle.condition
        self.call_queue = self._lifecycle.call_queue

    @property
    def state(self) -> ServerState:
        return self.call_queue.state

    @property
    def negotiated(self) -> NegotiatedProtocol:
        """What requests have to be dressed like, as far as it is known; a connection mends what was guessed wrong."""
        current = self.condition.current
        return NOT_NEGOTIATED if current is None else current.connection.negotiated

    @property
    def queued(self) -> int:
        return len(self.call_queue)

    @property
    def in_flight(self) -> int:
        ready = self.call_queue.ready
        return 0 if ready is None else ready.in_flight

    def start(self) -> bool:
        """Start the server and wait until it is ready or has failed; True if it is ready."""
        self._lifecycle.requested()
        live_supervisors.add(self)
        metrics.observed.add(self)
        self._mailbox.put(Start())
        try:
            self._thread.start()
        except RuntimeError as error:
            live_supervisors.discard(self)
            self.condition.last_error = f"no thread for the server: {error}"
            self._lifecycle.fail(self.condition.last_error)
        self._settled.wait()
        return self.state is ServerState.READY

    def stop(self) -> None:
        """Stop the server and end the thread. Waiting calls end as cancelled. May be called more than once."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            logger.error("supervisor_stuck", server=self.name)
        elif self.state not in (ServerState.CREATED, ServerState.CLOSED):
            # The first start had failed, and the thread had ended with it or never begun.
            self.condition.move_to(ServerState.CLOSED, _DISCONNECTED)

    def request_stop(self) -> None:
        """Like `stop`, without waiting for it."""
        self._lifecycle.requested()
        self._mailbox.put(Stop())

    def after_fork(self) -> None:
        """In a forked child: the thread is gone, and the server belongs to the parent."""
        self.forked = True
        self._lifecycle.after_fork()

    def subscriptions_changed(self) -> None:
        """The client wants to hear other things than before."""
        self._mailbox.put(SubscriptionsChanged())

    def watch(self, waiting: Waiting) -> None:
        """Enforce the deadline of a call or a question that no thread waits for."""
        if not waiting.ended:
            self._mailbox.put(Watch(waiting))

    # The event loop. Everything below runs on the supervisor's thread.

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
            self._close_runners()
        except Exception as error:
            # A mistake of ours must not leave callers waiting, nor the server running.
            logger.error("supervisor_broken", server=self.name, error=repr(error))
            self.condition.last_error = f"internal error: {error!r}"
            self._lifecycle.close(self.condition.last_error)
            raise
        finally:
            live_supervisors.discard(self)
            metrics.observed.discard(self)
            self._settled.set()

    def _failed_for_good(self) -> bool:
        """A server that was never ready is not retried; its supervisor ends, and a new connect() makes a new one."""
        return self.state in (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION) and not self.condition.known

    def _close_runners(self) -> None:
        """Let those that were interrupted take note of it; nothing comes of them any more."""
        with contextlib.suppress(queue.Empty):
            while True:
                match self._mailbox.get_nowait():
                    case Answered(runner, call):
                        runner.answered(call)

    def _handle(self, letter: Letter) -> None:
        match letter:
            case Start():
                self._lifecycle.begin()
            case Stop():
                self._lifecycle.close(_DISCONNECTED)
            case Wanted():
                self._lifecycle.wanted()
            case LoggedIn(error):
                self._lifecycle.logged_in(error)
            case Ended(connection):
                self._lifecycle.ended(connection)
            case Closed(ending):
                self._lifecycle.closed(ending)
            case Notified(connection, notification):
                self._lifecycle.notified(connection, notification)
            case Expired(call):
                self._lifecycle.expired(call)
            case SubscriptionsChanged():
                self._lifecycle.subscriptions_changed()
            case Answered(runner, call):
                runner.answered(call)
            case Watch(waiting):
                self._timers.watch(waiting)

    def _fire_timers(self) -> None:
        timers, late = self._timers.due(self._clock.monotonic())
        for waiting in late:
            if isinstance(waiting, Call):
                self.call_queue.expire(waiting)
            elif isinstance(waiting, ServerRequest | InputRequests):
                waiting.expire()
        for timer in timers:
            self._lifecycle.due(timer)
