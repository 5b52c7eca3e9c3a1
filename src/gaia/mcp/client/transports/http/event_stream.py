"""A stream of server-sent events, over as many responses as it takes (2025-11-25, "Resumability and Redelivery")."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2

__all__ = ["EventStream"]

_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 300.0


class EventStream:
    """The place that was reached in one stream. Belongs to the thread that reads it."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self.last_id: str | None = None
        """Of the last event that had one: from there the server can go on."""
        self.retry = _RETRY_SECONDS
        """How many seconds to wait before asking for the rest."""

    def messages(self, response: httpx2.Response) -> Iterator[bytes]:
        """The data of the events that are messages. Raises `httpx2.SSEError` for anything but events."""
        for name, data in self.events(response):
            # An event without data only says from where to go on.
            if name == "message" and data:
                yield data

    def events(self, response: httpx2.Response) -> Iterator[tuple[str, bytes]]:
        """Name and data of each event; comments are left out."""
        for event in httpx2.EventSource(response, self._max_message_bytes):
            self.last_id = event.id or self.last_id
            if event.retry is not None:
                self.retry = min(max(event.retry, 0) / 1000, _MAX_RETRY_SECONDS)
            yield event.event, event.data.encode("utf-8", "replace")
