"""A fresh process takes the place of a server that is ready, without a gap, because that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from opentelemetry.context import Context

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.lifecycle_spans import ReplacementSpans
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import RecyclingReason, SupervisionContext
from gaia.mcp.supervision.events import Restarted
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.leaving import Leaving
from gaia.mcp.supervision.spare import Spare
from gaia.mcp.supervision.status import Condition
from gaia.runtime.event_loop import run_all
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

OnReplaced = Callable[[MCPError | None], None]
"""Told once, on the supervisor's thread: None when the fresh process has taken over, or why it has not."""


class _Replacement(NamedTuple):
    drain: float
    reason: RecyclingReason
    on_done: OnReplaced
    context: SupervisionContext | None = None
    """What the fresh process is started with; None: what the server has."""

    @property
    def keeps_trying(self) -> bool:
        """Whether a failure of the fresh process is followed by further attempts: the server has reached a limit."""
        return self.reason not in ("requested", "reconfigured")


class Replacements:
    """Replaces one server when that is asked for. Belongs to the supervisor's thread.

    1. The spare is the fresh process. It is started, unless a stand-by is there already.
    2. When it was greeted it becomes the current generation. New calls go to it; what is subscribed is set up before.
    3. The old one finishes the calls that it has, see `Leaving.drain`. Its end is no loss.
    4. If the fresh one fails, the old one goes on.
    """

    def __init__(
        self,
        context: SupervisionContext,
        call_queue: CallQueue,
        condition: Condition,
        spare: Spare,
        leaving: Leaving,
        make_ready: Callable[[Generation], None],
    ) -> None:
        """`make_ready` makes a generation that was greeted the current one, to which calls go."""
        self._context = context
        self._call_queue = call_queue
        self._condition = condition
        self._spare = spare
        self._leaving = leaving
        self._make_ready = make_ready
        self._wanted: _Replacement | None = None
        """What was asked for and is not done yet."""
        self._spans = ReplacementSpans(context.observer, context.executor)

    @property
    def candidate(self) -> SupervisionContext | None:
        """What the next process is to be started with; None if that is what the server has."""
        return None if self._wanted is None else self._wanted.context

    @property
    def is_wanted(self) -> bool:
        """Whether one was asked for and is not done yet."""
        return self._wanted is not None

    def ask(
        self,
        drain: float,
        on_done: OnReplaced,
        reason: RecyclingReason,
        asked_in: Context | None = None,
        context: SupervisionContext | None = None,
    ) -> None:
        """Replace the server. The old process gets `drain` seconds for its calls.

        If that was "requested", or the server was "reconfigured", it is done at once, and tried once; `asked_in` is the
        trace that it belongs to. For any other reason, a failure of the fresh process is followed by further attempts,
        after a backoff. `context` is another configuration, for the fresh process and all that come after it.
        """
        if self._call_queue.ready is None:
            name, state = self._context.name, self._condition.state.value
            on_done(MCPError(f"server {name!r} is {state}, and only one that is ready can be replaced"))
            return
        earlier, self._wanted = self._wanted, _Replacement(drain, reason, on_done, context)
        if earlier is None:
            self._spans.began(reason, asked_in)
        else:
            # One fresh process is enough for both.
            self._wanted = earlier._replace(
                on_done=lambda error: run_all(*_told(error, earlier.on_done, on_done)),
                context=context or earlier.context,
            )
        spare = self._spare.generation
        if spare is not None and context is not None and spare.context is not context:
            self._spare.end()
            spare = None
        if spare is not None and spare.greeting is not None:
            self.hand_over()
        else:
            self._spare.want(at_once=not self._wanted.keeps_trying or context is not None)

    def await_start(self, on_done: OnReplaced, reason: RecyclingReason, asked_in: Context) -> None:
        """A server that is not ready is about to be started: `on_done` is told what comes of it."""
        self.done(MCPError("another configuration has taken its place"))
        self._wanted = _Replacement(0.0, reason, on_done)
        self._spans.began(reason, asked_in)

    def hand_over(self) -> None:
        """The spare was greeted. Does nothing unless a replacement was asked for."""
        wanted, old = self._wanted, self._condition.current
        if wanted is None or old is None or self._call_queue.ready is None or (fresh := self._spare.take()) is None:
            # Either process was lost a moment ago, and what follows that has begun.
            return
        try:
            # From now on it is lost, and not forgotten, if anything raises.
            self._condition.current = fresh
            old.retire()
            self._call_queue.drain(old.connection)
            self._make_ready(fresh)
        finally:
            self._leaving.drain(old, wanted.drain)
        name, number = self._context.name, self._condition.generation
        reason = f"recycled: {wanted.reason}"
        self._condition.recycled(reason)
        self._spans.replaced(number, fresh.pid)
        logger.info("server_replaced", server=name, generation=number, pid=fresh.pid, reason=reason, drain=wanted.drain)
        self._context.hooks.happened(Restarted(name, number, downtime=0.0, reason=reason))
        self.done(None)

    def failed(self, error: MCPError) -> None:
        """The spare could not be started, or was lost."""
        wanted = self._wanted
        if wanted is None:
            return
        self._condition.last_error = f"no fresh process could take its place: {error.message}"
        logger.warning("server_not_replaced", server=self._context.name, reason=wanted.reason, error=error.message)
        if wanted.keeps_trying:
            # The spare is started again, after its backoff, and with what has worked.
            self._wanted = wanted._replace(on_done=lambda _: None, context=None)
            wanted.on_done(error)
        else:
            self.done(error)

    def done(self, error: MCPError | None) -> None:
        """What was asked for is done, or will not be done. Does nothing if nothing was asked for."""
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        if error is not None:
            self._spans.failed(error.message)
        else:
            self._spans.ended()
        if not self._context.standby:
            self._spare.end()
        wanted.on_done(error)


def _told(error: MCPError | None, *on_done: OnReplaced) -> list[Callable[[], None]]:
    return [partial(one, error) for one in on_done]
