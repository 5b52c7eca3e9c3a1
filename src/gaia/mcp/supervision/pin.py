"""`Pin`: calls that stay with one connection, for work that the server remembers from one call to the next."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.errors import AnswerLost, CallCancelled, NotConnected, NotOffered, ServerCrashed, SessionLost
from gaia.mcp.protocol.gateway_answers import GENERATION
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.supervision.call_queue import CallQueue, both, session_lost
from gaia.mcp.transports.base import PlacementStatus


class Pin:
    """Implements `Supervised` and `CallEntry`, for one `Caller`. Thread-safe.

    While it is open and in use, its process counts as one with a call: it is not stopped as idle, and if it is replaced
    or removed, it is drained.
    """

    def __init__(self, queue: CallQueue, placement: Callable[[], PlacementStatus | None] = lambda: None) -> None:
        """Stay with the connection of `queue` that gets calls now. Raises NotConnected and ServerUnavailable.

        `placement` returns where that runs. A host restarts its server itself, and the connection goes on.
        """
        connection = queue.ready
        if connection is None:
            raise queue.not_ready()
        self.call_queue = self
        self.next_id = queue.next_id
        self.ready: Connection = connection
        self.placement = placement()
        """Where the server runs."""
        self._placement = placement
        self._queue = queue
        self._is_closed = False
        self._has_crashed = False
        connection.pins.add(self)

    @property
    def is_lost(self) -> bool:
        return self._has_crashed or self.ready.state is ConnectionState.CLOSED or self._was_restarted()

    def _was_restarted(self) -> bool:
        before, now = self.placement, self._placement()
        return before is not None and now is not None and before.generation != now.generation

    def close(self) -> None:
        """Take no more calls; calls under way go on."""
        self._is_closed = True
        self.ready.pins.discard(self)

    def submit(self, call: Call) -> bool:
        call.pinned = True
        if self.placement is not None:
            # The host may have restarted the server, and this program learns of that only by the next heartbeat.
            call.headers = {**(call.headers or {}), GENERATION: str(self.placement.generation)}
        call.on_done = both(call.on_done, self._ended)
        if self._is_closed:
            call.finish(error=NotConnected("this handle of pinned() is closed; open another one"))
        elif not self._queue.takes(call):
            call.finish(error=NotOffered(f"the process of this handle defines the tool {call.tool!r} otherwise"))
        elif self.is_lost or not self.ready.submit(call):
            call.finish(error=SessionLost(session_lost(self.ready.name, "it had ended before the call")))
        return True

    def _ended(self, call: Call) -> None:
        if isinstance(call.error, SessionLost | ServerCrashed) and not isinstance(call.error, AnswerLost):
            # The server of a gateway has crashed, and the gateway goes on.
            self._has_crashed = True
        self._queue.call_ended(call)

    def expire(self, call: Call) -> bool:
        return self._queue.expire(call)

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        return self._queue.cancel(call, error)
