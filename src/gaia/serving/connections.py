"""Bounds the connections of an HTTP server: how many there are, and how long a client may take for each step.

uvicorn bounds neither the time of a request's head and body nor the number of connections without a complete request.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gaia.serving.open_connections import FULL, STALLED_SECONDS, TIMED_OUT, OpenConnections, Waiting
from gaia.serving.options import HttpOptions

_WAITING = {h11.IDLE: Waiting.HEAD, h11.SEND_BODY: Waiting.BODY}


class Connections(OpenConnections["BoundedProtocol"]):
    """Those of one server, with how long each may take for what is waited for. For its event loop."""

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(options.max_connections)
        self.seconds = {Waiting.HEAD: options.head_timeout, Waiting.BODY: options.body_timeout}


class BoundedProtocol(H11Protocol):
    """One connection. Drops a client that is too slow with a request, or with reading the response."""

    def __init__(self, *arguments: Any, connections: Connections, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.waiting = Waiting.HEAD
        self.group = None
        """Clients are not told apart."""
        self._others = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        if self._others.add(self):
            self._set_deadline()
        else:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.remove(self)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.waiting is Waiting.HEAD and self._deadline is None:
            # The first bytes after a pause between requests, which uvicorn bounds.
            self._set_deadline()
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _wait_for_reader(self, unread: int) -> None:
        """Look again later. While writing is paused, what is unread gets less only by the client's reading."""
        self._stalled = self.loop.call_later(STALLED_SECONDS, self._look_at_reader, unread)

    def _look_at_reader(self, unread: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._wait_for_reader(left)
        else:
            self.drop()

    def drop(self) -> None:
        """Close the connection without waiting for what is still to be written."""
        self._others.remove(self)
        self.transport.abort()

    def _look(self) -> None:
        """Notice how far the request is. Each step has the time since it began, however many bytes arrive."""
        waiting = _WAITING.get(self.conn.their_state, Waiting.APPLICATION)
        if waiting is not self.waiting:
            self.waiting = waiting
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            if waiting is Waiting.BODY:
                self._set_deadline()

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._others.seconds[self.waiting], self._too_slow)

    def _too_slow(self) -> None:
        if self.waiting is Waiting.HEAD or not self.cycle.response_started:
            self.transport.write(TIMED_OUT)
        self._others.remove(self)
        self.transport.close()


def bounded_protocol(options: HttpOptions) -> Callable[..., BoundedProtocol]:
    """What uvicorn makes its connections with."""
    return functools.partial(BoundedProtocol, connections=Connections(options))
