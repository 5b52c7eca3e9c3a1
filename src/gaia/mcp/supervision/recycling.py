"""Decides when a working process is replaced or stopped.

`Recycling` has a fresh process take its place because of its age, its calls or its memory. `Idling` stops it when it is
idle, until the next call.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from gaia.mcp.rpc.connection import CountedConnection
from gaia.mcp.supervision.context import RecyclingLimits, RecyclingReason
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.status import ServerCore
from gaia.runtime.clock import Clock
from gaia.runtime.event_loop import EventLoop, Timer
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_LIFETIME_JITTER = 0.1
"""A lifetime is shorter by up to this fraction, so that servers started together are not replaced together."""

_SECONDS_BETWEEN_LOOKS = 5.0
"""How often the memory of a server with a limit is measured."""


class Recycling:
    """Watches the age, calls and memory of the present process of one server. Belongs to the supervisor's thread."""

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

        The memory is not measured within the first `settling_seconds`: otherwise a server whose limit is too low would
        be replaced again and again. Sets the timer RECYCLING.
        """
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._loop = loop
        self._settling_seconds = settling_seconds
        self._replace = replace
        self._watched: Generation | None = None
        self._due: RecyclingReason | None = None
        self._lifetime_ends: float | None = None
        """This and the next are readings of the clock."""
        self._next_memory_look: float | None = None

    def adopt(self, limits: RecyclingLimits, settling_seconds: float) -> None:
        self._limits, self._settling_seconds = limits, settling_seconds

    def begin(self, generation: Generation) -> None:
        """The process is ready, and no call has been sent to it yet."""
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
            # The timer came due together with the event that ended the process.
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
        # The replacement may fail now: the server may be on trial, or a requested replacement may just have failed.
        self._due = self._due or reason
        self._loop.timers.set(Timer.RECYCLING, self._clock.monotonic() + _SECONDS_BETWEEN_LOOKS, self._look)
        self._replace(self._due)


_LOOKS = 4
"""How often a busy server is checked within the time after which an idle one is stopped."""


class Idling:
    """Watches whether the present process of one server is used. Belongs to the supervisor's thread.

    A server is in use while calls wait for it or for its answers, while it waits for an answer of the client, and while
    the client is subscribed to resources.
    """

    def __init__(self, core: ServerCore, stop: Callable[[], object]) -> None:
        """`stop` is called when the server was unused for `context.idle_stop` seconds. Sets the timer IDLE."""
        self._context, self._loop, self._call_queue, _ = core
        self._stop = stop
        self._watched: CountedConnection | None = None
        self._seen_request = 0.0
        """When the last request was made, as of the last look. This and the next are readings of the clock."""
        self._idle_since: float | None = None
        """None: the server was in use at the last look."""

    @property
    def is_in_use(self) -> bool:
        return self._call_queue.in_flight > 0 or len(self._call_queue) > 0 or bool(self._subscribed) or self._asks

    @property
    def _asks(self) -> bool:
        watched = self._watched
        return watched is not None and self._context.server_requests.has_open(watched)

    @property
    def _subscribed(self) -> object:
        return self._context.hooks.subscriptions.resources

    def begin(self, generation: Generation) -> None:
        self.end()
        connection, now = generation.connection, self._context.clock.monotonic()
        if self._context.idle_stop is None or not isinstance(connection, CountedConnection):
            return
        self._watched, self._seen_request, self._idle_since = connection, connection.last_request, now
        self._loop.timers.set(Timer.IDLE, now + self._context.idle_stop, self._look)

    def end(self) -> None:
        """The process is lost, stopped, or being replaced."""
        self._watched = None
        self._loop.timers.cancel(Timer.IDLE)

    def _look(self) -> None:
        connection, idle_stop, now = self._watched, self._context.idle_stop, self._context.clock.monotonic()
        if connection is None or idle_stop is None:
            # The timer came due together with the event that ended the process.
            return
        if self.is_in_use:
            self._idle_since = None
            self._loop.timers.set(Timer.IDLE, now + idle_stop / _LOOKS, self._look)
            return
        if self._idle_since is None or connection.last_request != self._seen_request:
            # The time of the last answer is unknown; it came at the time of the last message or before.
            self._seen_request = connection.last_request
            self._idle_since = max(connection.last_heard, self._seen_request)
        if now - self._idle_since < idle_stop:
            self._loop.timers.set(Timer.IDLE, self._idle_since + idle_stop, self._look)
        else:
            # Look again, because a server that is being replaced cannot be stopped now.
            self._loop.timers.set(Timer.IDLE, now + idle_stop / _LOOKS, self._look)
            self._stop()
