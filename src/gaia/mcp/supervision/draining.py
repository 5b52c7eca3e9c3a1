"""Old processes of a server that was replaced or is stopped. Each finishes its calls; then it is ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gaia.mcp.errors import CallCancelled, MCPError
from gaia.mcp.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.login import Logins
from gaia.mcp.supervision.policy import Loss
from gaia.mcp.supervision.status import ServerCore
from gaia.runtime.event_loop import Task, Timer, run_all

_LOOK_SECONDS = 0.05


class DrainingConnections:
    """Ends generations that get no new calls. Belongs to the supervisor's thread."""

    def __init__(
        self,
        core: ServerCore,
        on_silent: Callable[[], object],
        on_left: Callable[[Generation], None],
    ) -> None:
        """`on_left` is called when a generation has ended completely. Sets the timer DRAINING.

        `on_silent` is called when nothing more will be written to a generation; if it hangs, seconds before `on_left`.
        """
        self._context, self._loop, self._call_queue, _ = core
        self._on_silent = on_silent
        self._on_left = on_left
        self._draining: dict[Generation, tuple[float, float]] = {}
        """For each generation: its deadline (a reading of the clock), and the seconds that it had."""
        self._ending: dict[Generation, None] = {}
        self._may_be_written: set[Generation] = set()

    @property
    def may_write_any(self) -> bool:
        return bool(self._may_be_written)

    @property
    def is_empty(self) -> bool:
        return not (self._draining or self._ending)

    def drain(self, generation: Generation, seconds: float) -> None:
        """Let it finish its calls for at most `seconds` (`math.inf`: no limit), then end it."""
        now = self._context.clock.monotonic()
        self._draining[generation] = (now + seconds, seconds)
        self._loop.timers.set(Timer.DRAINING, now, self._look)
        generation.drain()

    def let_go(self, generation: Generation, seconds: float) -> None:
        """`drain` the running server, which nothing replaces. It gets no new calls."""
        try:
            generation.retire()
            self._call_queue.drain(generation.connection)
            self._call_queue.suspend()
        finally:
            self.drain(generation, seconds)

    def _look(self) -> None:
        now = self._context.clock.monotonic()
        self._loop.timers.set(Timer.DRAINING, now + _LOOK_SECONDS, self._look)
        for generation, (until, seconds) in list(self._draining.items()):
            if now >= until or not generation.connection.is_in_use:
                error = f"it was replaced by another process, and did not answer within {seconds:g} s"
                self._lost(generation, MCPError(error))
        if not self._draining:
            self._loop.timers.cancel(Timer.DRAINING)

    def ended(self, generation: Generation) -> None:
        if generation in self._draining:
            self._lost(generation, None)

    def hung(self, generation: Generation) -> None:
        if generation in self._draining:
            self._lost(generation, MCPError("it hangs"))

    def _lost(self, generation: Generation, error: MCPError | None) -> None:
        ending = generation.lose(error)
        loss = Loss(error, ending, was_ready=True)
        self._conclude(generation, ending, lambda lost: self._call_queue.take_back(lost, loss.described()))

    def end_all(self, error: Callable[[], MCPError]) -> None:
        """End the calls of draining generations with `error`, because the server is stopped. Call `wait` afterwards."""

        def fail(lost: Connection) -> None:
            self._call_queue.fail(lost.close(), error)

        self._loop.timers.cancel(Timer.DRAINING)
        draining = list(self._draining)
        run_all(
            *(partial(generation.lose, error()) for generation in draining),
            *(partial(self._conclude, generation, Ending(), fail) for generation in draining),
            # If all went well, there are none.
            lambda: run_all(*(partial(self._end_drained, generation, Ending()) for generation in list(self._draining))),
        )

    def _conclude(self, generation: Generation, ending: Ending, end_calls: Callable[[Connection], object]) -> None:
        """End a lost generation; `end_calls` closes its connection. May be called again."""
        connection = generation.connection
        run_all(
            lambda: end_calls(connection),
            lambda: self._call_queue.drained(connection),
            lambda: self._context.server_requests.lost(connection),
        )
        self._end_drained(generation, ending)

    def _end_drained(self, generation: Generation, ending: Ending) -> None:
        self.end(generation, Loss(None, ending, was_ready=True))
        del self._draining[generation]

    def end(self, generation: Generation, loss: Loss) -> None:
        """End the process of a generation that was lost or was never needed, and has no calls."""
        post = self._loop.post
        generation.terminate(
            loss, lambda _: post(lambda: self._left(generation)), lambda: post(lambda: self._silent(generation))
        )
        self._ending[generation] = None
        self._may_be_written.add(generation)

    def _silent(self, generation: Generation) -> None:
        if generation in self._may_be_written:
            self._may_be_written.discard(generation)
            self._on_silent()

    def _left(self, generation: Generation) -> None:
        if self._ending.pop(generation, generation) is None:
            self._on_left(generation)
            self._silent(generation)

    def wait(self) -> None:
        for generation in list(self._ending):
            generation.stop()


class Stopping:
    """Ends a server with all its processes and calls. Belongs to the supervisor's thread."""

    def __init__(
        self,
        core: ServerCore,
        draining: DrainingConnections,
        logins: Logins,
        spans: LifecycleSpans,
        ends: tuple[Task, ...],
        on_end: Callable[[MCPError], None],
    ) -> None:
        """`ends` end the parts that only a ready server has. `on_end` gets the error for a replacement under way."""
        self._context, _, self._call_queue, self._condition = core
        self._draining = draining
        self._logins = logins
        self._spans = spans
        self._ends = ends
        self._on_end = on_end
        self._closing: str | None = None
        self._finishing: str | None = None
        """Why the server is stopped for good after it has finished its calls."""

    @property
    def is_finishing(self) -> bool:
        return self._finishing is not None and self._closing is None

    @property
    def is_wanted(self) -> bool:
        return self._finishing is not None or self._closing is not None

    def finish(self, reason: str, drain: float) -> None:
        """Stop the server for good. A ready server gets `drain` seconds to finish its calls; new ones are refused."""
        generation = self._condition.current
        if drain <= 0 or (not self.is_finishing and (generation is None or self._call_queue.ready is None)):
            self.close(reason)
            return
        if generation is None:
            # It is already finishing its calls.
            return
        self._finishing = reason
        self._condition.current = None
        error = CallCancelled(f"server {self._context.name!r} is closed: {reason}")
        run_all(
            # Before the connection is taken away, so that no call gets into the backlog.
            lambda: self._condition.move_to(ServerState.CLOSED, reason),
            *self._ends,
            lambda: self._draining.let_go(generation, drain),
            lambda: self._on_end(error),
        )

    def left(self) -> None:
        if self._finishing is not None and self._draining.is_empty:
            self.close(self._finishing)

    def close(self, reason: str) -> None:
        self._closing = reason
        run_all(
            lambda: self._spans.closing(self._condition.uptime),
            lambda: self.end(ServerState.CLOSED, reason, CallCancelled),
        )

    def close_after(self, error: str) -> None:
        self._closing = self._closing or self._finishing or error
        self.end(ServerState.CLOSED, self._closing, CallCancelled)

    def end(self, state: ServerState, reason: str, error: Callable[[str], MCPError]) -> None:
        """End the server and all calls. Each step runs, even if others fail."""
        generation, final = self._condition.current, Ending()
        message = f"server {self._context.name!r} is {state.value}: {reason}"
        steps: list[Task] = [
            lambda: self._condition.move_to(state, reason),
            *self._ends,
            lambda: self._draining.end_all(lambda: error(message)),
            lambda: self._on_end(error(message)),
            self._logins.abort,
            self._call_queue.suspend,
        ]
        if generation is not None:
            generation.ready_since = None
            connection = generation.connection
            steps += [
                lambda: self._call_queue.fail(connection.close(), lambda: error(message)),
                lambda: self._context.server_requests.lost(connection),
            ]
        try:
            run_all(*steps)
        finally:
            if generation is not None:
                final = generation.stop()
            self._draining.wait()
        self._condition.terminated()
        if self._closing is None:
            self._spans.gave_up(reason)
        else:
            self._spans.closed(final.exit_code, final.signal)
