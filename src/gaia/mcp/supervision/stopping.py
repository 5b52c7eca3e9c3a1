"""A server is stopped for good: at once, or when it has finished its calls."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.errors import CallCancelled, MCPError
from gaia.mcp.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.leaving import Leaving
from gaia.mcp.supervision.login import Logins
from gaia.mcp.supervision.replacement import Replacements
from gaia.mcp.supervision.status import Condition
from gaia.runtime.event_loop import Task, run_all


class Stopping:
    """Ends a server and all that belongs to it. Belongs to the supervisor's thread."""

    def __init__(
        self,
        context: SupervisionContext,
        call_queue: CallQueue,
        condition: Condition,
        leaving: Leaving,
        replacements: Replacements,
        logins: Logins,
        spans: LifecycleSpans,
        ends: tuple[Task, ...],
    ) -> None:
        """`ends` end what is there only while the server is ready."""
        self._context = context
        self._name = context.name
        self._call_queue = call_queue
        self._condition = condition
        self._leaving = leaving
        self._replacements = replacements
        self._logins = logins
        self._spans = spans
        self._ends = ends
        self._closing: str | None = None
        """Why the server is stopped for good, from that on."""
        self._finishing: str | None = None
        """Why the server is stopped for good, while it finishes its calls."""

    @property
    def is_finishing(self) -> bool:
        """Whether the server is stopped for good, as soon as it has finished its calls."""
        return self._finishing is not None and self._closing is None

    @property
    def is_wanted(self) -> bool:
        """Whether the server is stopped for good, now or as soon as it has finished its calls."""
        return self._finishing is not None or self._closing is not None

    def finish(self, reason: str, drain: float) -> None:
        """Stop the server for good. It has `drain` seconds to finish its calls if it is ready; new ones are refused."""
        generation = self._condition.current
        if drain <= 0 or (not self.is_finishing and (generation is None or self._call_queue.ready is None)):
            self.close(reason)
            return
        if generation is None:
            # It was asked for before, and goes on.
            return
        self._finishing = reason
        self._condition.current = None
        error = CallCancelled(f"server {self._name!r} is closed: {reason}")
        run_all(
            # Before the connection is taken away: no call gets into the backlog then.
            lambda: self._condition.move_to(ServerState.CLOSED, reason),
            *self._ends,
            lambda: self._leaving.let_go(generation, drain),
            lambda: self._replacements.done(error),
        )

    def left(self) -> None:
        """A process to which no calls go any more has ended completely."""
        if self._finishing is not None and self._leaving.is_empty:
            self.close(self._finishing)

    def close(self, reason: str) -> None:
        """Stop the server for good, and wait for its end."""
        self._closing = reason
        run_all(
            lambda: self._spans.closing(self._condition.uptime),
            lambda: self.end(ServerState.CLOSED, reason, CallCancelled),
        )

    def close_after(self, error: str) -> None:
        """The same when an exception has kept a server that `is_wanted` stopped from that; some of it was done."""
        self._closing = self._closing or self._finishing or error
        self.end(ServerState.CLOSED, self._closing, CallCancelled)

    def end(self, state: ServerState, reason: str, error: Callable[[str], MCPError]) -> None:
        """End the server and all calls. Each of these steps is taken, whatever becomes of the others."""
        generation, final = self._condition.current, Ending()
        message = f"server {self._name!r} is {state.value}: {reason}"
        steps: list[Task] = [
            lambda: self._condition.move_to(state, reason),
            *self._ends,
            lambda: self._leaving.end_all(lambda: error(message)),
            lambda: self._replacements.done(error(message)),
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
            self._leaving.wait()
        self._condition.terminated()
        if self._closing is None:
            self._spans.gave_up(reason)
        else:
            self._spans.closed(final.exit_code, final.signal)
