"""A thread that reads what a server says on the response to a GET."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import httpx2

from gaia.mcp.client.transports.http.http_connection import Interrupted

if TYPE_CHECKING:
    from gaia.mcp.client.transports.http.channel import HttpChannel

__all__ = ["StreamReader"]


class StreamReader(ABC):
    """The thread and its wire. It is not started yet."""

    def __init__(self, channel: HttpChannel) -> None:
        self._channel = channel
        self._http_connection = channel.new_http_connection()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mcp-{channel.name}-http-events", daemon=True)

    def interrupt(self) -> None:
        """Have the thread end soon, whatever it waits for. From any thread."""
        self._closing.set()
        self._http_connection.interrupt()

    def join(self, seconds: float) -> bool:
        """False if the thread is still there after `seconds`."""
        if self._thread.ident is None:
            self._http_connection.close()
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """What the thread does; it closes the wire in the end."""

    def _get(self, last_event_id: str | None) -> AbstractContextManager[httpx2.Response]:
        """Open the stream after the event with this id. Raises `Interrupted` and what `HttpConnection.request` does."""
        headers = self._channel.stream_headers(last_event_id)
        return self._http_connection.request("GET", self._channel.url, headers, on_sending=self._check)

    def _check(self) -> None:
        if self._closing.is_set():
            raise Interrupted
