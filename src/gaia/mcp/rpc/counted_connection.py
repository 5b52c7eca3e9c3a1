"""A connection that notes the requests of the application."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection


class CountedConnection(Connection):
    """Tells once that as many requests were submitted as its server is to get, and knows when the last one was made.

    A class of its own, because most servers have no such limit, and each call passes through `submit`.
    """

    last_request = -math.inf
    """A reading of the clock. Set by any thread; one of several at the same moment is enough."""
    _next: Callable[[], int] = itertools.repeat(0).__next__
    _limit = -1
    _on_reached: Callable[[], object] = staticmethod(lambda: None)

    def count(self, limit: int, on_reached: Callable[[], object]) -> None:
        """Call `on_reached` at the request number `limit`, in the thread that submits it. To be called first."""
        # Its steps are atomic, so it needs no lock.
        self._next = itertools.count(1).__next__
        self._limit, self._on_reached = limit, on_reached

    def submit(self, call: Call) -> bool:
        submitted = super().submit(call)
        if submitted and not call.bound:
            self.last_request = call.now
            if self._next() == self._limit:
                self._on_reached()
        return submitted
