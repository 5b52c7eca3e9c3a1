"""Updates for open pages as server-sent events: first a snapshot, then each change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice
from typing import Any

from gaia.dashboard import responses
from gaia.runtime.locks import reentrant_lock

POLL_SECONDS = 0.25
_STATUS_SECONDS = 1.0
"""Seconds between two comparisons of the servers' figures, which change without events."""
_KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a comment keeps the connection open."""


Update = tuple[str, dict[str, Any]]
"""The kind (``"event"``, ``"call"`` or ``"progress"``), and JSON values."""


class UpdateBuffer:
    """A ring buffer of the last `limit` updates. Thread-safe.

    `write` never waits for a reader and wakes none, because it may run in the thread of a call. Each reader keeps its
    own position. A reader that has missed updates starts again with a snapshot.
    """

    def __init__(self, limit: int = 2000) -> None:
        self._lock = reentrant_lock()
        """Guards both attributes below. Held for a few operations only."""
        self._updates: deque[Update] = deque(maxlen=limit)
        self._written = 0

    @property
    def position(self) -> int:
        with self._lock:
            return self._written

    def write(self, kind: str, data: dict[str, Any]) -> None:
        with self._lock:
            self._updates.append((kind, data))
            self._written += 1

    def read(self, position: int) -> tuple[list[Update], int] | None:
        """The updates since `position`, and the next position; None if the buffer no longer has all of them."""
        with self._lock:
            missed = self._written - position
            if missed > len(self._updates):
                return None
            return list(islice(self._updates, len(self._updates) - missed, None)), self._written


class UpdateStream:
    """The event streams of all open pages. For the event loop; other threads write the updates."""

    def __init__(self, buffer: UpdateBuffer, sources: Mapping[str, Callable[[], Any]]) -> None:
        """`sources` make the parts of a snapshot. Changes of ``servers``, ``gateway`` and ``running`` are sent."""
        self._buffer = buffer
        self._sources = sources
        self._closing = False
        self.readers = 0

    def close(self) -> None:
        """End all streams soon. Any thread may call it."""
        self._closing = True

    def snapshot(self) -> dict[str, Any]:
        return {kind: source() for kind, source in self._sources.items()}

    async def events(self) -> AsyncIterator[bytes]:
        """The stream of one page. A page that has missed updates gets a new ``snapshot``."""
        self.readers += 1
        try:
            loop = asyncio.get_running_loop()
            # The position is read before the snapshot is made, so no update is missed. An update in between is sent
            # twice; the page recognises it by its id.
            position, last = self._buffer.position, self.snapshot()
            yield responses.event("snapshot", last)
            compared = sent = loop.time()
            while not self._closing:
                await asyncio.sleep(POLL_SECONDS)
                found = self._buffer.read(position)
                if found is None:
                    position, last = self._buffer.position, self.snapshot()
                    yield responses.event("snapshot", last)
                    continue
                updates, position = found
                chunks = [responses.event(kind, data) for kind, data in updates]
                now = loop.time()
                if now - compared >= _STATUS_SECONDS or updates:
                    compared = now
                    chunks += self._changed(last, "servers")
                    chunks += self._changed(last, "gateway")
                chunks += self._changed(last, "running")
                if not chunks and now - sent >= _KEEP_ALIVE_SECONDS:
                    chunks = [b": keep-alive\n\n"]
                if chunks:
                    sent = now
                    yield b"".join(chunks)
        finally:
            self.readers -= 1

    def _changed(self, last: dict[str, Any], kind: str) -> list[bytes]:
        value = self._sources[kind]()
        if last.get(kind) == value:
            return []
        last[kind] = value
        return [responses.event(kind, value)]
