"""`EventStream`: the events of servers, for ``async for``."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable

from gaia.mcp.supervision.callbacks import MAX_LISTENER_BYTES, Lane
from gaia.mcp.supervision.events import Event, Listeners
from gaia.runtime.loop_work import LoopWork, WakeUp, running_loop_work


class EventStream(AsyncIterator[Event]):
    """The events after it was made, for one task. The events of each server come in order.

    It ends when the manager or the client is disconnected, and when it is closed or dropped, as by ``break`` in an
    ``async for``. If the task is so slow that more than 10,000 events or 4 MiB of one server wait, the oldest of that
    server are dropped, and an `EventsDropped` says how many.

    Raises RuntimeError in a second task that waits for the next event, and on another event loop than that on which
    ``events()`` was called.
    """

    def __init__(self, listeners: Listeners) -> None:
        feed = self._feed = _Feed(running_loop_work())
        # The listeners refer to the feed only, so that a dropped stream can be collected.
        self._close: Callable[[], object] = weakref.finalize(self, listeners.subscribe(feed.put, feed, feed.end))

    async def __anext__(self) -> Event:
        return await self._feed.take()

    async def aclose(self) -> None:
        """End the stream; does nothing if it has ended."""
        self._close()
        self._feed.close()


class _Feed:
    def __init__(self, work: LoopWork) -> None:
        self._work = work
        self._arrived = WakeUp(work)
        self._is_awaited = False
        self._lane = Lane(lambda _: None)
        self._next: Event | None = None
        """The lane's task sets it, on the loop's thread."""
        self._over = False

    def lane(self, on_dropped: Callable[[str, int], object]) -> Lane:
        self._lane = Lane(lambda _: self._arrived.send(), max_bytes=MAX_LISTENER_BYTES, on_dropped=on_dropped)
        return self._lane

    def put(self, event: Event) -> None:
        self._next = event

    def end(self) -> None:
        self._over = True

    def close(self) -> None:
        self._over = True
        self._arrived.send()

    async def take(self) -> Event:
        """The next event. Raises StopAsyncIteration at the end, RuntimeError in a second task or on another loop."""
        if self._work.loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "these events are of another event loop; call events() on the loop that iterates over them"
            )
        if self._is_awaited:
            raise RuntimeError("another task waits for the next of these events; call events() once for each task")
        self._is_awaited = True
        try:
            return await self._next_event()
        finally:
            self._is_awaited = False

    async def _next_event(self) -> Event:
        while True:
            while (task := self._lane.take()) is not None:
                task()
                if self._next is not None:
                    event, self._next = self._next, None
                    return event
            if self._over:
                raise StopAsyncIteration
            await self._arrived.wait()
