"""When a server that works is replaced by a fresh process: by its age, its calls, or its memory."""

from __future__ import annotations

import random
from collections.abc import Callable

from gaia.mcp.rpc.counted_connection import CountedConnection
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.recycling_limits import RecyclingLimits, RecyclingReason
from gaia.runtime.clock import Clock
from gaia.runtime.event_loop import EventLoop, Timer
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_LIFETIME_JITTER = 0.1
"""By up to this fraction a lifetime is shorter: servers that were started together must not be replaced together."""

_SECONDS_BETWEEN_LOOKS = 5.0
"""How often the memory of a server with a limit is looked at."""


class Recycling:
    """Watches what the present process of one server uses up. Belongs to the supervisor's thread."""

    def __init__(
        self,
        limits: RecyclingLimits,
        clock: Clock,
        rng: random.Random,
        loop: EventLoop,
        settling_seconds: float,
        replace: Callable[[RecyclingReason], object],
    ) -> None:
        """`replace` is called when the process has reached a limit, and every few seconds after that.

        The memory of a process is not looked at within `settling_seconds`: a limit that is too low for the server
        would have it replaced again and again. Sets the timer RECYCLING.
        """
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._loop = loop
        self._settling_seconds = settling_seconds
        self._replace = replace
        self._watched: Generation | None = None
        self._due: RecyclingReason | None = None
        """The limit that the process has reached."""
        self._lifetime_ends: float | None = None
        """These two are readings of the clock."""
        self._next_memory_look: float | None = None

    def adopt(self, limits: RecyclingLimits, settling_seconds: float) -> None:
        """Other limits hold for the next process."""
        self._limits, self._settling_seconds = limits, settling_seconds

    def begin(self, generation: Generation) -> None:
        """A process is ready, and no call has been sent to it yet."""
        self.end()
        self._watched = generation
        limits, now, connection = self._limits, self._clock.monotonic(), generation.connection
        if limits.max_lifetime is not None:
            self._lifetime_ends = now + limits.max_lifetime * (1 - _LIFETIME_JITTER * self._rng.random())
        if limits.max_memory is not None:
            self._next_memory_look = now + max(self._settling_seconds, _SECONDS_BETWEEN_LOOKS)
        if limits.max_calls is not None and isinstance(connection, CountedConnection):
            connection.count(limits.max_calls, lambda: self._loop.post(lambda: self._reached("max_calls", generation)))
        self._set_timer()

    def end(self) -> None:
        """The process is lost, stopped, or being replaced."""
        self._watched = self._due = self._lifetime_ends = self._next_memory_look = None
        self._loop.timers.cancel(Timer.RECYCLING)

    def _set_timer(self) -> None:
        moments = [moment for moment in (self._lifetime_ends, self._next_memory_look) if moment is not None]
        if moments:
            self._loop.timers.set(Timer.RECYCLING, min(moments), self._look)

    def _look(self) -> None:
        generation, now = self._watched, self._clock.monotonic()
        if generation is None:
            # It came due together with what has ended the process.
            return
        if self._due is not None:
            self._reached(self._due, generation)
            return
        if self._lifetime_ends is not None and now >= self._lifetime_ends:
            self._reached("max_lifetime", generation)
            return
        if self._next_memory_look is not None and now >= self._next_memory_look:
            self._next_memory_look = now + _SECONDS_BETWEEN_LOOKS
            if self._is_too_large(generation):
                self._reached("max_memory", generation)
                return
        self._set_timer()

    def _is_too_large(self, generation: Generation) -> bool:
        limit = self._limits.max_memory
        try:
            size = generation.memory()
        except Exception as error:  # noqa: BLE001 - the server must not be lost because it cannot be measured
            logger.warning("memory_unknown", server=generation.connection.name, error=exception_text(error))
            return False
        return limit is not None and size is not None and size > limit

    def _reached(self, reason: RecyclingReason, generation: Generation) -> None:
        if generation is not self._watched:
            return
        # The server may be on trial, or may just have been replaced in vain because the application wanted that.
        self._due = self._due or reason
        self._loop.timers.set(Timer.RECYCLING, self._clock.monotonic() + _SECONDS_BETWEEN_LOOKS, self._look)
        self._replace(self._due)
