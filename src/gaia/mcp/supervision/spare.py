"""The spare: a second generation of a server, started and greeted, to which no call is sent before it takes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from gaia.mcp.errors import CallCancelled, CallTimeout, MCPError
from gaia.mcp.observation.lifecycle_spans import StandbySpans
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.health import HealthCheck
from gaia.mcp.supervision.leaving import Leaving
from gaia.mcp.supervision.policy import Loss, OpenCircuit, RestartTracker, load_backoff
from gaia.runtime.event_loop import EventLoop, Timer
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_NOT_NEEDED = "the stand-by is not needed any more"


class StandbyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The process that waits to take over when the server is lost. Durations in seconds."""

    state: Literal["starting", "ready", "retrying"]
    """``starting``: it is being started and greeted. ``ready``: it takes over at once. ``retrying``: it has failed, or
    was not started yet, and is started in `retry_in`."""
    pid: int | None = None
    """Its process; None while there is none."""
    retry_in: float | None = None
    """Until its next start; None unless it is ``retrying``."""
    last_error: str | None = None
    """The last thing that went wrong with a stand-by of this server; None if nothing has."""


class SpareOwner(Protocol):
    """What the spare needs of the server's lifecycle."""

    def start(self, number: int) -> Generation: ...

    def greet(self, generation: Generation) -> None: ...

    def standby_failed(self, error: MCPError) -> None: ...


class Spare:
    """Keeps one generation ready to take over, as long as one is wanted. Belongs to the supervisor's thread.

    1. `want` starts one, unless there is one. One that fails, dies or hangs is only a warning. It is started again by
       the same restart policy as the server, and never counts as a failure of the server.
    2. `take` gives it away: from then on it is a generation like any other.
    3. `rest` lets one that is there go on, and starts no other; `end` ends it too.
    """

    def __init__(
        self,
        context: SupervisionContext,
        loop: EventLoop,
        call_queue: CallQueue,
        leaving: Leaving,
        next_number: Callable[[], int],
        owner: SpareOwner,
    ) -> None:
        """`next_number` gives the number of the next start. Sets the timers STANDBY and STANDBY_HEALTH."""
        self.generation: Generation | None = None
        """For any thread to read."""
        self._context = context
        self._loop = loop
        self._call_queue = call_queue
        self._leaving = leaving
        self._next_number = next_number
        self._owner = owner
        self._spans = StandbySpans(context.observer, context.executor)
        self._tracker = RestartTracker(context.policy, context.rng)
        self._wanted = False
        self._not_before = 0.0
        """A reading of the clock: when the next one may be started."""
        self._last_error: str | None = None

    @property
    def status(self) -> StandbyStatus | None:
        """None if there is none, and none is wanted. For any thread."""
        generation = self.generation
        if generation is not None:
            state: Literal["starting", "ready"] = "starting" if generation.greeting is None else "ready"
            return StandbyStatus(state=state, pid=generation.pid, last_error=self._last_error)
        if not self._wanted:
            return None
        retry_in = max(0.0, self._not_before - self._context.clock.monotonic())
        return StandbyStatus(state="retrying", retry_in=retry_in, last_error=self._last_error)

    def want(self, *, at_once: bool = False) -> None:
        """Start one, unless there is one, and keep it until `rest` or `end`. `at_once`: without any backoff."""
        self._wanted = True
        if at_once:
            self._not_before = 0.0
        if self.generation is None:
            # By a timer also if it is due now: the calls that waited for the server come first.
            self._loop.timers.set(Timer.STANDBY, self._not_before, self._open)

    def reconfigured(self) -> None:
        """The server has another restart policy."""
        self._tracker = RestartTracker(self._context.policy, self._context.rng)
        self._not_before = 0.0

    def delay(self, moment: float) -> None:
        """Start the next one not before this reading of the clock."""
        self._not_before = max(self._not_before, moment)

    def rest(self) -> None:
        """Start no other one until `want`."""
        self._wanted = False
        self._loop.timers.cancel(Timer.STANDBY)

    def end(self) -> None:
        """End the one that is there, and start no other one until `want`."""
        self.rest()
        if self.generation is not None:
            self._drop()

    def take(self) -> Generation | None:
        """Give it away, greeted or not yet; None if there is none that lives."""
        generation = self.generation
        if generation is None:
            return None
        if generation.maintenance is None:
            # An exception has come between its loss and its end, or between its start and its greeting.
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
        """In a forked child: it belongs to the parent."""
        self.generation = None
        self._wanted = False

    def _open(self) -> None:
        if not self._wanted or self.generation is not None:
            # The timer came due together with what made this unnecessary.
            return
        number = self._next_number()
        self._spans.opening(number)
        try:
            self.generation = generation = self._owner.start(number)
        except MCPError as error:
            self._failed(error.message, error)
            return
        generation.connection.trace_context = self._spans.spawned(generation.pid)
        self._owner.greet(generation)

    def greeted(self) -> None:
        """It can take over from now on."""
        generation = self.generation
        assert generation is not None, "only a spare that is there is greeted"
        assert generation.greeting is not None, "it was greeted"
        assert generation.run_exchange is not None, "it was greeted"
        context, server = self._context, self._context.name
        now = context.clock.monotonic()
        self._tracker.on_ready(now)
        self._spans.ended()
        generation.connection.trace_context = None
        logger.info("standby_ready", server=server, generation=generation.connection.generation, pid=generation.pid)
        health = HealthCheck(
            generation.greeting.profile.era,
            generation.run_exchange,
            lambda: self._hung(generation),
            interval=context.health_interval,
            timeout=context.health_timeout,
        )
        self._loop.timers.set(Timer.STANDBY_HEALTH, now + context.health_interval, lambda: self._check(health))
        # When the server is lost, this one does not wait for it.
        load_backoff()

    def _check(self, health: HealthCheck) -> None:
        if self.generation is not None and health.run_exchange is self.generation.run_exchange:
            self._loop.timers.set(Timer.STANDBY_HEALTH, health.tick(), lambda: self._check(health))

    def _hung(self, generation: Generation) -> None:
        if generation is self.generation:
            timeout = self._context.health_timeout
            self.lost(CallTimeout(f"it hangs, and answered no probe within {timeout:g} s"), hung=True)

    def lost(self, error: MCPError | None, *, hung: bool = False) -> None:
        """It is over: `error` says why; None says that the server ended it."""
        loss = self._leave(error, hung=hung)
        reason = loss.described()
        if loss.ended_while_opening and self._context.negotiation.retry_with_initialize():
            # It exited on the probe, see `Step.RETRY_WITH_INITIALIZE`.
            self._spans.ended()
            if self._wanted:
                self.want()
            return
        self._failed(reason, error or MCPError(reason))

    def _drop(self) -> None:
        """End the one that is there, which is no failure: what it was asked is cancelled."""
        self._spans.ended()
        self._leave(CallCancelled(_NOT_NEEDED))

    def _leave(self, error: MCPError | None, *, hung: bool = False) -> Loss:
        generation = self.generation
        assert generation is not None, "only a spare that is there can leave"
        loss = Loss(error, Ending(), was_ready=generation.greeting is not None, hung=hung)
        try:
            self._loop.timers.cancel(Timer.STANDBY_HEALTH)
            loss = msgspec.structs.replace(loss, ending=generation.lose(error))
            asked = generation.connection.close()
            if isinstance(error, CallCancelled):
                self._call_queue.fail(asked, lambda: error)
            else:
                self._call_queue.take_back(asked, loss.described())
            self._context.server_requests.lost(generation.connection)
        finally:
            self._leaving.end(generation, loss)
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
        self._owner.standby_failed(error)
        # It may have been the only attempt at a planned replacement, which is reported as such.
        if self._wanted:
            logger.warning("standby_failed", server=self._context.name, reason=reason, retry_in=moment - now)
