"""When a server that is ready is used by nothing any more, so that it can be stopped until the next call."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.rpc.counted_connection import CountedConnection
from gaia.mcp.supervision.call_queue import CallQueue
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.generation import Generation
from gaia.runtime.event_loop import EventLoop, Timer

_LOOKS = 4
"""How often a busy server is looked at within the time after which it would be stopped."""


class Idling:
    """Watches whether the present process of one server is used. Belongs to the supervisor's thread.

    A server is in use while calls wait for it or for its answers, while it waits for an answer of the client, and while
    the client is subscribed to resources.
    """

    def __init__(
        self, context: SupervisionContext, loop: EventLoop, call_queue: CallQueue, stop: Callable[[], object]
    ) -> None:
        """`stop` is called when the server was not used for `context.idle_stop` seconds. Sets the timer IDLE."""
        self._context = context
        self._loop = loop
        self._call_queue = call_queue
        self._stop = stop
        self._watched: CountedConnection | None = None
        self._seen_request = 0.0
        """When the last request was made that the last look has seen. This and the next are readings of the clock."""
        self._idle_since: float | None = None
        """None: it was in use at the last look."""

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
        """A process is ready."""
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
            # It came due together with what has ended the process.
            return
        if self.is_in_use:
            self._idle_since = None
            self._loop.timers.set(Timer.IDLE, now + idle_stop / _LOOKS, self._look)
            return
        if self._idle_since is None or connection.last_request != self._seen_request:
            # When the last answer came is not known; it was not after this message.
            self._seen_request = connection.last_request
            self._idle_since = max(connection.last_heard, self._seen_request)
        if now - self._idle_since < idle_stop:
            self._loop.timers.set(Timer.IDLE, self._idle_since + idle_stop, self._look)
        else:
            # For a server that cannot be stopped now, because it is being replaced.
            self._loop.timers.set(Timer.IDLE, now + idle_stop / _LOOKS, self._look)
            self._stop()
