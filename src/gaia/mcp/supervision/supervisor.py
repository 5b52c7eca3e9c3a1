"""The supervisor: one thread with an event loop that keeps one server alive.

`ServerLifecycle` has the steps. The thread never waits for an answer of the server, nor for its end: other threads post
to its event loop. Callers' threads only use the call queue, the ready connection, and the event loop's queue.

A supervisor lives once, from `start` to `stop`. An exception in a step costs the server a restart, like a crash. The
call queue, the policy's memory and the timers survive it, because they belong to no generation.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import context as contexts

from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.exchange_runner import CallAnswered
from gaia.mcp.supervision.maintenance import Maintenance
from gaia.mcp.supervision.pin import Pin
from gaia.mcp.supervision.server_lifecycle import ServerLifecycle
from gaia.mcp.supervision.spare import OnReplaced
from gaia.runtime import log
from gaia.runtime.deadlines import deadlines_of
from gaia.runtime.event_loop import EventLoop, Task, run_all
from gaia.runtime.locks import Latch, WeakObjects
from gaia.runtime.log import exception_text, get_logger, traceback_text
from gaia.runtime.threads import EngineThread
from gaia.telemetry import metrics, spans

logger = get_logger(__name__)

_STOP_SECONDS = 30.0
"""Longer than the longest orderly shutdown."""

_JOIN_SECONDS = 1.0
_LOOK_SECONDS = 0.5
"""How soon a thread that waits for a new process notices that the supervisor has ended."""

_DISCONNECTED = "it was disconnected"
_DROPPED = "its client was dropped"
_THREAD = "thread"
_STOP = "stop"
_NO_THREAD = "no thread"


class Supervisor:
    """Supervises one server. Public methods and attributes are for any thread."""

    def __init__(
        self,
        context: SupervisionContext,
        new_queue: Callable[..., CallQueue] = CallQueue,
        on_closed: Callable[[], object] | None = None,
    ) -> None:
        """A pool gives its replica a call queue of another kind, and is told when the replica is closed."""
        self.name = context.name
        self.is_forked = False
        """Whether this is a forked child; the thread and the server belong to the parent."""
        self._loop = EventLoop(context.clock)
        self._over = False
        self._settled = Latch()
        self._all_done = Latch()
        """Opened at the end of the thread. Unlike `Thread.join`, several threads may wait for it, and a signal handler
        may wait in the middle of a wait."""
        self._told_to_stop = False
        self._was_started = False
        self._begun_by: dict[None, str] = {}
        """What came first decides: the `_THREAD` runs, a `_STOP` came before, or there is `_NO_THREAD`. Not a lock,
        because an interrupted thread must be able to find out whether its claim was made, see `end_once`."""
        self._starting_in: int | None = None
        """The thread that starts the supervisor's thread, and cannot continue before that one runs."""
        self._thread = EngineThread(self._run, f"mcp-{context.name}-supervisor", self._ended)
        self._lifecycle = ServerLifecycle(context, self._loop, self._settled.open, self._adopted, new_queue)
        # Questions between two rounds belong to no connection. Their deadline keeps the thread running.
        self._on_closed = on_closed or context.server_requests.withdraw_all
        self._context = context
        self._transport = context.transport
        self._clock = context.clock
        self.condition = self._lifecycle.condition
        self.call_queue = self._lifecycle.call_queue
        self.next_id = self.call_queue.next_id
        self._deadlines = deadlines_of(context.clock)

    @property
    def state(self) -> ServerState:
        return self.call_queue.state

    @property
    def replica(self) -> int | None:
        return self._context.observer.replica

    @property
    def queued(self) -> int:
        return self.call_queue.queued

    @property
    def in_flight(self) -> int:
        return self.call_queue.in_flight

    @property
    def is_fresh(self) -> bool:
        """Whether `start` may be called: it never was, even if interrupted, and no thread has asked for a stop."""
        return not (self._was_started or self._told_to_stop)

    @property
    def is_running(self) -> bool:
        return self._thread.ident is not None and not (self.is_forked or self._all_done.is_open or self._is_over())

    def start(self, *, keep_trying: bool = False) -> bool:
        """Start the server and wait until it is ready or has failed; True if it is ready, or lazy and known.

        With `keep_trying`, a failed server is tried again, as after a crash, until `stop`.
        """
        self.begin(keep_trying=keep_trying)
        self._settled.wait()
        if self._is_over():
            # Wait for the thread of a failed start, so that nothing is left behind.
            self._all_done.wait(_JOIN_SECONDS)
            self._let_go()
        _flush()
        return self.state is ServerState.READY or (self.state is ServerState.EXITED and self._context.lazy)

    def begin(self, *, keep_trying: bool) -> None:
        """Do what `start` does, without waiting."""
        self._was_started = True
        self._lifecycle.requested()
        _running.add(self)
        metrics.observed.add(self)
        self._loop.post(lambda: self._begin(keep_trying))
        self._starting_in = threading.get_ident()
        try:
            self._deadlines.hold(self)
            self._thread.start()
        except RuntimeError as error:
            if "start new thread" not in str(error):
                # A signal handler has raised it in the middle of the start. The thread may run.
                raise
            if self._claims(_NO_THREAD):
                self.condition.last_error = f"no thread for the server: {error}"
                self._lifecycle.follow_up.fail(self.condition.last_error)
                self._all_done.open()
        finally:
            self._starting_in = None

    def wake(self) -> None:
        """Start a server that is at rest, as a call would."""
        self._loop.post(self._lifecycle.call_waiting)

    def stop(self, drain: float = 0.0) -> None:
        """Stop the server and end the thread. Waiting calls end as cancelled. May be called more than once.

        A ready server has `drain` seconds to finish its calls, while new ones are refused. If a signal handler or a
        finalizer calls this in the middle of `start`, or on the supervisor's thread, it does not wait, because the
        thread could not continue meanwhile.
        """
        self.request_stop(drain)
        if threading.get_ident() in (self._starting_in, self._thread.ident):
            return
        # A forked child has no such thread, so the wait would never end.
        if not self.is_forked:
            if not self._all_done.wait(_STOP_SECONDS + drain):
                logger.error("supervisor_stuck", server=self.name)
                return
            if self._thread.ident is not None:
                self._thread.join(_JOIN_SECONDS)
        self._let_go()
        if self.state is not ServerState.CLOSED:
            # The first start had failed, and the thread had ended or was never started.
            self.condition.move_to(ServerState.CLOSED, _DISCONNECTED)
        _flush()

    def request_stop(self, drain: float = 0.0) -> None:
        self._told_to_stop = True
        self._lifecycle.requested()
        if not self._claims(_STOP):
            self._loop.post(lambda: self._lifecycle.stopping.finish(_DISCONNECTED, drain))
            return
        # The thread has not begun to run, so there is no server, and there will be none.
        run_all(
            lambda: self.condition.move_to(ServerState.CLOSED, _DISCONNECTED),
            self._on_closed,
            self._let_go,
            self._settled.open,
            self._all_done.open,
        )

    def _claims(self, beginning: str) -> bool:
        return self._begun_by.setdefault(None, beginning) is beginning

    def _let_go(self) -> None:
        self._deadlines.let_go(self)
        _running.discard(self)
        metrics.observed.discard(self)

    def abandon(self, release: Callable[[], object]) -> bool:
        """Stop the server of a dropped client, then call `release`. For finalizers, see `Session.abandon`."""
        # A thread that is about to end has nothing to stop.
        if not self.is_running:
            return False
        self._loop.post(lambda: self._abandoned(release))
        return not self._told_to_stop

    def after_fork(self) -> None:
        self.is_forked = True
        _running.discard(self)
        self._lifecycle.after_fork()

    def replace_now(self, drain: float) -> bool:
        """Replace a ready server (see `Replacements`), and wait. True if the new process has taken over."""
        asked_in, replacements = contexts.get_current(), self._lifecycle.replacements
        return self._wait_for(lambda done: replacements.ask(drain, done, "requested", asked_in)) == [None]

    def reconfigure_now(self, context: SupervisionContext, drain: float) -> list[MCPError | None]:
        """Use another configuration, see `ServerLifecycle.reconfigure`, and wait for the outcome.

        Returns a list with the outcome: None if the server is ready with it or at rest, or the error. The list is empty
        if this supervisor has ended meanwhile.
        """
        asked_in = contexts.get_current()
        return self._wait_for(lambda done: self._lifecycle.reconfigure(context, drain, done, asked_in))

    def _wait_for(self, ask: Callable[[OnReplaced], None]) -> list[MCPError | None]:
        outcomes: list[MCPError | None] = []
        is_known = Latch()

        def done(error: MCPError | None) -> None:
            outcomes.append(error)
            is_known.open()

        def asked() -> None:
            try:
                ask(done)
            except BaseException as error:
                done(MCPError(f"internal error: {exception_text(error)}"))
                raise

        self._loop.post(asked)
        # A supervisor that has ended does not call `done`.
        while not is_known.wait(_LOOK_SECONDS) and not self._all_done.is_open:
            pass
        _flush()
        return outcomes[:1]

    def pin(self) -> Pin:
        """A way to the present process alone; a server at rest is started. Raises NotConnected, ServerUnavailable."""
        if self.call_queue.ready is None:
            self.wake()
        generation = self.condition.current
        return Pin(self.call_queue, lambda: None if generation is None else generation.placement)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification if the server is ready; otherwise do nothing."""
        connection = self.call_queue.ready
        if connection is not None:
            connection.notify(method, params)

    def subscriptions_changed(self) -> None:
        self.maintain(Maintenance.subscriptions_changed)

    def maintain(self, step: Callable[[Maintenance], object]) -> None:
        """Have a ready server looked after: such as `Maintenance.list_tools`, as if it had announced a change."""
        self._loop.post(lambda: self._lifecycle.maintain(step))

    # The thread. Everything below runs on it.

    def _run(self) -> None:
        while not self._over:
            try:
                # Decided in the first turn. Within the loop, because an exception may cost a turn but not the thread.
                if not self._claims(_THREAD):
                    return
                self._take_turn()
            except BaseException as error:  # noqa: BLE001 - supervision goes on, even after SystemExit of foreign code
                self._recover(error)
        for task in self._loop.drain():
            # Finish interrupted exchanges, for their spans and generators; other tasks have no meaning now.
            if isinstance(task, CallAnswered):
                self._guarded(task)
        self._ended()

    def _begin(self, keep_trying: bool) -> None:
        try:
            self._transport.prepare(self)
        except BaseException as error:  # noqa: BLE001 - as below; the server only takes longer to start
            self._log_failure(error)
        self._lifecycle.begin(keep_trying=keep_trying)

    def _adopted(self) -> None:
        former, self._transport = self._transport, self._context.transport
        former.release(self)
        self._transport.prepare(self)

    def _ended(self) -> None:
        run_all(
            lambda: self._transport.release(self),
            lambda: self._on_closed() if self.state is ServerState.CLOSED else None,
            self._let_go,
            self._deadlines.wait_idle,
            # Other threads wait for these.
            self._settled.open,
            self._all_done.open,
        )

    def _abandoned(self, release: Callable[[], object]) -> None:
        try:
            self._lifecycle.stopping.close(_DROPPED)
        finally:
            release()

    def _take_turn(self) -> None:
        if self._is_over():
            self._over = True
            return
        try:
            task = self._loop.next_task() or self._fire_timers
        except BaseException as error:  # noqa: BLE001 - as above
            # The clock or a timer has failed. It would fail again at once, so no timer is used in this turn.
            self._recover(error)
            task = self._loop.next_task_soon() or self._is_over
        task()

    def _is_over(self) -> bool:
        """Whether the thread ends. A server that is not tried again needs no supervisor; `connect` makes a new one."""
        if self.state in (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION):
            return not self.condition.keep_trying
        return self.state is ServerState.CLOSED and not self._lifecycle.stopping.is_finishing

    def _guarded(self, task: Task) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - as above
            self._recover(error)

    def _recover(self, error: BaseException) -> None:
        """Recover from an exception of a step. Never raises: if the recovery fails too, the last resort follows."""
        try:
            self._log_failure(error)
            self._lifecycle.recover(error)
        except BaseException as failure:  # noqa: BLE001 - as above
            try:
                self._lifecycle.abandon(error)
                text, trace = exception_text(failure), traceback_text(failure)
                logger.error("supervisor_recovery_failed", server=self.name, error=text, exception=trace)
            except BaseException:  # noqa: BLE001 - the next task may succeed
                return

    def _log_failure(self, error: BaseException) -> None:
        text, trace = exception_text(error), traceback_text(error)
        logger.error("supervisor_task_failed", server=self.name, error=text, exception=trace)

    def _fire_timers(self) -> None:
        for task in self._loop.timers.due(self._clock.monotonic()):
            self._guarded(task)


def _flush() -> None:
    log.flush()
    spans.flush()


_running: WeakObjects[Supervisor] = WeakObjects(Supervisor.after_fork)


@atexit.register
def _stop_all() -> None:
    supervisors = _running.present()
    for supervisor in supervisors:
        supervisor.request_stop()
    for supervisor in supervisors:
        supervisor.stop()
