"""The trial of a server whose circuit was open: calls go to it one after the other until one is answered."""

from __future__ import annotations

from collections.abc import Callable

from gaia.mcp.errors import JsonRpcError
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.call_queue import CallQueue, Refusal
from gaia.runtime.event_loop import EventLoop, Timer


class Trial:
    """Hands calls to a server one at a time. Belongs to the supervisor's thread."""

    def __init__(self, queue: CallQueue, loop: EventLoop, refusal: Refusal, on_passed: Callable[[], None]) -> None:
        """`on_passed` is called when a call was answered, or the server was stable for long enough."""
        self._queue = queue
        self._loop = loop
        self._refusal = refusal
        self._on_passed = on_passed
        self._connection: Connection | None = None
        """The server's; None while no trial is under way."""
        self._call: Call | None = None
        """The call that the server has now."""

    @property
    def is_under_way(self) -> bool:
        return self._connection is not None

    def begin(self, connection: Connection, until: float) -> None:
        """Try the calls that wait. The server has passed at `until` on the clock, whatever becomes of them."""
        self._connection = connection
        self._loop.timers.set(Timer.TRIAL, until, self._on_passed)
        self.try_next()

    def try_next(self) -> None:
        """Hand over the call that has waited longest, unless the server has one."""
        if self._call is None and self._connection is not None:
            self._call = self._queue.admit_one(
                self._connection, self._refusal, lambda call: self._loop.post(lambda: self._tried(call))
            )

    def end(self) -> None:
        self._connection = self._call = None
        self._loop.timers.cancel(Timer.TRIAL)

    def _tried(self, call: Call) -> None:
        if call is not self._call:
            return
        self._call = None
        if call.error is None or isinstance(call.error, JsonRpcError):
            self._on_passed()
        else:
            self.try_next()
