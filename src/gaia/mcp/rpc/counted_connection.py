"""A connection that counts the application's requests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection


class CountedConnection(Connection):
    """Reports once that the limit of requests is reached, and knows when the last request was made.

    A class of its own, because every call passes through `submit` and most servers have no such limit.
    """

    last_request = -math.inf
    """A reading of the clock. Any thread sets it; if several do so at once, any of their values will do."""
    _next: Callable[[], int] = itertools.repeat(0).__next__
    _limit = -1
    _on_reached: Callable[[], object] = staticmethod(lambda: None)

    def count(self, limit: int, on_reached: Callable[[], object]) -> None:
        """Call `on_reached` in the thread that submits request number `limit`. Call this before the first request."""
        # Each step of the counter is atomic, so it needs no lock.
        self._next = itertools.count(1).__next__
        self._limit, self._on_reached = limit, on_reached

    def submit(self, call: Call) -> bool:
        submitted = super().submit(call)
        if submitted and not call.bound:
            self.last_request = call.now
            if self._next() == self._limit:
                self._on_reached()
        return submitted
