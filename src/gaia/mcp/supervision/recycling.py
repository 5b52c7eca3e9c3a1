"""Decides when a working process is replaced, because of its age, calls or memory, or stopped until the next call."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.rpc.connection import CountedConnection
from gaia.mcp.supervision.context import RecyclingReason, SupervisionContext
from gaia.mcp.supervision.generation import Generation
from gaia.mcp.supervision.status import ServerCore
from gaia.runtime.event_loop import EventLoop, Timer
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_LIFETIME_JITTER = 0.1
"""A lifetime is shorter by up to this fraction, so that servers started together are not replaced together."""

_SECONDS_BETWEEN_LOOKS = 5.0


class Recycling:
    """Watches the age, calls and memory of the present process of one server. Belongs to the supervisor's thread."""

    def __init__(
        self, context: SupervisionContext, loop: EventLoop, on_reached: Callable[[RecyclingReason], object]
    ) -> None:
        """`on_reached` is called when the process has reached a limit, and every few seconds after that.

        The memory is not measured until the server is stable: otherwise a server whose limit is too low would be
        replaced again and again. Sets the timer RECYCLING.
        """
        self._context = context
        self._loop = loop
        self._on_reached = on_reached
        self._watched: Generation | None = None
        self._due: RecyclingReason | None = None
        self._lifetime_ends: float | None = None
        """This and the next are readings of the clock."""
        self._next_memory_look: float | None = None

    def begin(self, generation: Generation) -> None:
        self.end()
        self._watched = generation
        context, connection = self._context, generation.connection
        limits, now = context.recycling, context.clock.monotonic()
        if limits.max_lifetime is not None:
            self._lifetime_ends = now + limits.max_lifetime * (1 - _LIFETIME_JITTER * context.rng.random())
        if limits.max_memory is not None:
            self._next_memory_look = now + max(context.policy.stable_after, _SECONDS_BETWEEN_LOOKS)
        if limits.max_calls is not None and isinstance(connection, CountedConnection):
            connection.count(limits.max_calls, lambda: self._loop.post(lambda: self._reached("max_calls", generation)))
        self._set_timer()

    def end(self) -> None:
        self._watched = self._due = self._lifetime_ends = self._next_memory_look = None
        self._loop.timers.cancel(Timer.RECYCLING)

    def _set_timer(self) -> None:
        moments = [moment for moment in (self._lifetime_ends, self._next_memory_look) if moment is not None]
        if moments:
            self._loop.timers.set(Timer.RECYCLING, min(moments), self._look)

    def _look(self) -> None:
        generation, now = self._watched, self._context.clock.monotonic()
        if generation is None:
            # The timer came due together with the event that ended the process.
            return
        reached = self._due
        if reached is None and self._lifetime_ends is not None and now >= self._lifetime_ends:
            reached = "max_lifetime"
        if reached is None and self._next_memory_look is not None and now >= self._next_memory_look:
            self._next_memory_look = now + _SECONDS_BETWEEN_LOOKS
            reached = "max_memory" if self._is_too_large(generation) else None
        if reached is None:
            self._set_timer()
        else:
            self._reached(reached, generation)

    def _is_too_large(self, generation: Generation) -> bool:
        limit = self._context.recycling.max_memory
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
        now = self._context.clock.monotonic()
        self._loop.timers.set(Timer.RECYCLING, now + _SECONDS_BETWEEN_LOOKS, self._look)
        self._on_reached(self._due)


_LOOKS = 4


class Idling:
    """Watches whether the present process of one server is used. Belongs to the supervisor's thread.

    A server is in use while calls wait for it or for its answers, while it waits for an answer of the client, and while
    the client is subscribed to resources.
    """

    def __init__(self, core: ServerCore, on_idle: Callable[[], object]) -> None:
        """`on_idle` is called when the server was unused for `context.idle_stop` seconds. Sets the timer IDLE."""
        self._context, self._loop, self._call_queue, _ = core
        self._on_idle = on_idle
        self._watched: CountedConnection | None = None
        self._seen_request = 0.0
        """The time of the last request before the last look. This and the next are readings of the clock."""
        self._idle_since: float | None = None
        """None: the server was in use at the last look."""

    @property
    def is_in_use(self) -> bool:
        context, watched = self._context, self._watched
        return (
            self._call_queue.in_flight > 0
            or len(self._call_queue) > 0
            or bool(context.hooks.subscriptions.resources)
            or (watched is not None and (watched.is_in_use or context.server_requests.has_open(watched)))
        )

    def begin(self, generation: Generation) -> None:
        self.end()
        connection, now = generation.connection, self._context.clock.monotonic()
        if self._context.idle_stop is None or not isinstance(connection, CountedConnection):
            return
        self._watched, self._seen_request, self._idle_since = connection, connection.last_request, now
        self._loop.timers.set(Timer.IDLE, now + self._context.idle_stop, self._look)

    def end(self) -> None:
        self._watched = None
        self._loop.timers.cancel(Timer.IDLE)

    def _look(self) -> None:
        connection, idle_stop, now = self._watched, self._context.idle_stop, self._context.clock.monotonic()
        if connection is None or idle_stop is None:
            # The timer came due together with the event that ended the process.
            return
        # Look again even if it is idle, because a server that is being replaced cannot be stopped now.
        self._loop.timers.set(Timer.IDLE, now + idle_stop / _LOOKS, self._look)
        if self.is_in_use:
            self._idle_since = None
            return
        if self._idle_since is None or connection.last_request != self._seen_request:
            # The time of the last answer is unknown; it came at the time of the last message or before.
            self._seen_request = connection.last_request
            self._idle_since = max(connection.last_heard, self._seen_request)
        if now - self._idle_since < idle_stop:
            self._loop.timers.set(Timer.IDLE, self._idle_since + idle_stop, self._look)
        else:
            self._on_idle()
