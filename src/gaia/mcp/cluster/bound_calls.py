"""Calls that stay with one start of a server on one host."""

from __future__ import annotations

from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.errors import CallCancelled, NotConnected
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.transports.base import PlacementStatus


class BoundCalls:
    """Implements `Supervised` and `CallEntry`, for one `Caller`. Thread-safe."""

    ready: Connection | None = None

    def __init__(self, calls: PlacedCalls, gate: Gate, placement: PlacementStatus | None) -> None:
        """`gate` is what `PlacedCalls.bind` has chosen."""
        self.call_queue = self
        self.next_id = calls.next_id
        self.placement = placement
        """Where the server runs."""
        self._calls = calls
        self._gate = gate
        self._incarnation, self._start = gate.incarnation, gate.start
        self._is_closed = False

    @property
    def is_lost(self) -> bool:
        """Whether calls cannot go there any more, or not at the moment."""
        return not self._calls.is_open(self._incarnation, self._start)

    def close(self) -> None:
        """Take no calls any more."""
        if not self._is_closed:
            self._is_closed = True
            self._calls.unbind(self._gate)

    def submit(self, call: Call) -> bool:
        if self._is_closed:
            call.finish(error=NotConnected("this handle for one replica is closed; open another one with pinned()"))
            return True
        self._calls.submit_bound(call, self._incarnation, self._start)
        return True

    def expire(self, call: Call) -> bool:
        return self._calls.expire(call)

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        return self._calls.cancel(call, error)
