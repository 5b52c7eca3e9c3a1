"""A stream of server-sent events, over as many responses as it takes (2025-11-25, "Resumability and Redelivery")."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx2

__all__ = ["EventStream"]

_RETRY_SECONDS = 1.0
_MIN_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 300.0
_MAX_ID = 4096
"""Characters. The id is a header of the request for the rest, and servers take some 8 KiB of headers."""


class EventStream:
    """The place that was reached in one stream. Belongs to the thread that reads it."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self.last_id: str | None = None
        """Of the last event that had one: from there the server can go on."""
        self.retry = _RETRY_SECONDS
        """How many seconds the server wants to be left alone before it is asked for the rest, within limits."""
        self._fruitless = 0
        """How many times in a row the server was asked without sending a message."""

    def pause(self, max_backoff: float) -> float:
        """How many seconds to wait now before asking for the rest.

        Longer each time that nothing came, up to `max_backoff` or what the server asked for.
        """
        backoff = min(math.ldexp(self.retry, min(self._fruitless, 32)), max_backoff)
        self._fruitless += 1
        return max(self.retry, backoff)

    def messages(self, response: httpx2.Response) -> Iterator[bytes]:
        """The data of the events that are messages. Raises `httpx2.SSEError` for anything but events."""
        for name, data in self.events(response):
            # An event without data only says from where to go on.
            if name == "message" and data:
                self._fruitless = 0
                yield data

    def events(self, response: httpx2.Response) -> Iterator[tuple[str, bytes]]:
        """Name and data of each event; comments are left out."""
        for event in httpx2.EventSource(response, self._max_message_bytes):
            if event.id and _can_be_sent(event.id):
                self.last_id = event.id
            if event.retry is not None:
                # Compared as an integer: it may be too large for a float.
                milliseconds = min(max(event.retry, 0), int(_MAX_RETRY_SECONDS * 1000))
                self.retry = max(milliseconds / 1000, _MIN_RETRY_SECONDS)
            yield event.event, event.data.encode("utf-8", "replace")


def _can_be_sent(identifier: str) -> bool:
    """Whether an id can be the value of a header. The place that any other marks cannot be asked for."""
    return len(identifier) <= _MAX_ID and identifier.isascii() and identifier.isprintable()
