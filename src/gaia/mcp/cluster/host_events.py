"""On a host: the events that wait until the driver fetches them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import msgspec

from gaia.mcp.cluster.wire import EventHappened, HostEvent, Logged, Progressed, Sent
from gaia.mcp.protocol.messages import value_size

_MAX_LOSSY = 10_000
_MAX_LOSSY_BYTES = 8 * 1024 * 1024
"""Reports of progress and log messages that wait at most; further ones are dropped."""


class HostEvents:
    """Numbered from 1. An event is kept until the driver has acknowledged it. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        """Owns everything below. No code of the application runs in a host, so nothing interrupts its owner."""
        self._events: deque[tuple[HostEvent, int]] = deque()
        """Each with its size if it may be dropped, otherwise 0."""
        self._first = 1
        """The number of the oldest event that is kept."""
        self._lossy = 0
        self._lossy_bytes = 0
        self._polls = 0
        self._closed = False

    def add(self, event: HostEvent) -> bool:
        """False if the event was dropped, because too many wait."""
        size = value_size(_content(event)) + 1 if isinstance(event, Progressed | Logged | EventHappened) else 0
        with self._changed:
            if size and (self._lossy >= _MAX_LOSSY or self._lossy_bytes + size > _MAX_LOSSY_BYTES):
                return False
            self._lossy += size > 0
            self._lossy_bytes += size
            self._events.append((event, size))
            self._changed.notify_all()
        return True

    def fetch(self, acknowledged: int, seconds: float) -> Sent:
        """The events after the one with the number `acknowledged`, waiting at most `seconds` for the first.

        A poll ends those before it, whose answers do not reach the driver any more.
        """
        with self._changed:
            while self._events and self._first <= acknowledged:
                _, size = self._events.popleft()
                self._first += 1
                self._lossy -= size > 0
                self._lossy_bytes -= size
            self._polls += 1
            this_poll = self._polls
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._events or self._closed or self._polls != this_poll, seconds)
            if self._polls != this_poll:
                return Sent(self._first, [])
            return Sent(self._first, [event for event, _ in self._events])

    def close(self) -> None:
        """Let polls return."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _content(event: HostEvent) -> Any:
    return event.params if isinstance(event, Progressed | Logged) else msgspec.structs.asdict(event)
