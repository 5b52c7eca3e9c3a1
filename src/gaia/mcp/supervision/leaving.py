"""Generations whose place another one has taken: they finish their calls, or were lost; then all of them is ended.

A lost server is usually ended before the next one is started. If a stand-by takes over at once, it is ended beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gaia.mcp.errors import MCPError
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.policy import Loss
from gaia.runtime.event_loop import EventLoop, Timer, run_all

_LOOK_SECONDS = 0.05
"""How soon it is noticed that a server has answered its last call."""


class Leaving:
    """Ends generations that new calls do not go to. Belongs to the supervisor's thread."""

    def __init__(
        self,
        context: SupervisionContext,
        loop: EventLoop,
        call_queue: CallQueue,
        on_silent: Callable[[], object],
        on_left: Callable[[Generation], None],
    ) -> None:
        """`on_left` is called when a generation has ended completely. Sets the timer DRAINING.

        `on_silent` is called when nothing more will be written to one, which is seconds before that if it hangs.
        """
        self._context = context
        self._loop = loop
        self._call_queue = call_queue
        self._on_silent = on_silent
        self._on_left = on_left
        self._draining: dict[Generation, tuple[float, float]] = {}
        """When their time is up, as a reading of the clock, and how many seconds they had."""
        self._ending: dict[Generation, None] = {}
        """Those that are being ended, each in a thread of its own."""
        self._may_be_written: set[Generation] = set()
        """Those of them whose channels could still write what was taken back from them."""

    @property
    def may_write_any(self) -> bool:
        """Whether a call that was taken back could still be written to the generation that it was taken from."""
        return bool(self._may_be_written)

    @property
    def is_empty(self) -> bool:
        """Whether all of them have ended completely."""
        return not (self._draining or self._ending)

    def drain(self, generation: Generation, seconds: float) -> None:
        """Let it finish the calls that it has, for so long at most (`math.inf`: as long as they take), then end it."""
        now = self._context.clock.monotonic()
        self._draining[generation] = (now + seconds, seconds)
        self._loop.timers.set(Timer.DRAINING, now, self._look)
        generation.drain()

    def let_go(self, generation: Generation, seconds: float) -> None:
        """The same for the server that runs, whose place no other one takes. New calls do not go to it any more."""
        try:
            generation.retire()
            self._call_queue.drain(generation.connection)
            self._call_queue.suspend()
        finally:
            self.drain(generation, seconds)

    def _look(self) -> None:
        """End those that have no calls any more, or no time."""
        now = self._context.clock.monotonic()
        self._loop.timers.set(Timer.DRAINING, now + _LOOK_SECONDS, self._look)
        for generation, (until, seconds) in list(self._draining.items()):
            if generation.connection.in_flight == 0 or now >= until:
                error = f"it was replaced by another process, and did not answer within {seconds:g} s"
                self._drained(generation, generation.lose(MCPError(error)), error)
        if not self._draining:
            self._loop.timers.cancel(Timer.DRAINING)

    def ended(self, generation: Generation) -> None:
        """It has ended by itself, perhaps with calls that it had. Does nothing if it is none that is draining."""
        if generation in self._draining:
            ending = generation.lose(None)
            self._drained(generation, ending, Loss(None, ending, was_ready=True).described())

    def hung(self, generation: Generation) -> None:
        """It answers nothing any more. Does nothing if it is none that is draining."""
        if generation in self._draining:
            self._drained(generation, generation.lose(MCPError("it hangs")), "it hangs")

    def _drained(self, generation: Generation, ending: Ending, reason: str) -> None:
        connection = generation.connection
        run_all(
            lambda: self._call_queue.take_back(connection.close(), reason),
            lambda: self._call_queue.drained(connection),
            lambda: self._context.server_requests.lost(connection),
        )
        self.end(generation, Loss(None, ending, was_ready=True))
        del self._draining[generation]

    def end(self, generation: Generation, loss: Loss) -> None:
        """End what is left of a generation that was lost, or was never needed, and has no calls any more."""
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

    def end_all(self, error: Callable[[], MCPError]) -> None:
        """The server is stopped: the calls of those that are draining end with `error`. `wait` has to follow."""
        self._loop.timers.cancel(Timer.DRAINING)
        run_all(*(partial(self._end_now, generation, error) for generation in list(self._draining)))

    def _end_now(self, generation: Generation, error: Callable[[], MCPError]) -> None:
        connection = generation.connection
        run_all(
            lambda: generation.lose(error()),
            lambda: self._call_queue.fail(connection.close(), error),
            lambda: self._call_queue.drained(connection),
            lambda: self._context.server_requests.lost(connection),
            lambda: self.end(generation, Loss(None, Ending(), was_ready=True)),
        )
        del self._draining[generation]

    def wait(self) -> None:
        """Return when all of them have ended."""
        for generation in list(self._ending):
            generation.stop()
