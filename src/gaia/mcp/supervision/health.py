"""Detects a hung server: pings it when it is idle or has let a call time out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from gaia.mcp.errors import CallTimeout, MCPError
from gaia.mcp.protocol.eras import Era
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.exchange_runner import RunExchange


@dataclasses.dataclass(eq=False)
class HealthCheck:
    """Watches one connection. Belongs to the supervisor's thread; durations in seconds.

    It pings a server that has been idle for `interval`, or that let a call time out while no older call was unanswered.
    Any message that arrives during the ping shows that the server lives; after silence it calls `on_hung`. It does not
    ping a server with calls in flight otherwise: the server may be busy, and the calls have deadlines.
    """

    era: Era
    run_exchange: RunExchange
    on_hung: Callable[[], None]
    interval: float
    timeout: float
    _pinging = False

    def tick(self) -> float:
        """Ping the server if it is idle. Returns when to check next, as a reading of the clock."""
        now, connection = self.run_exchange.clock.monotonic(), self.run_exchange.connection
        if connection.in_flight == 0 and now - connection.last_heard >= self.interval:
            self._ping()
        return now + self.interval

    def suspect(self, call: Call) -> None:
        if call.written and not self.run_exchange.connection.has_older_than(call):
            self._ping()

    def _ping(self) -> None:
        if self._pinging:
            return
        self._pinging = True
        began = self.run_exchange.clock.monotonic()

        def alive(_: None) -> None:
            self._pinging = False

        def unanswered(error: MCPError) -> None:
            self._pinging = False
            # A server that has sent any message meanwhile is busy, not hung.
            if isinstance(error, CallTimeout) and self.run_exchange.connection.last_heard <= began:
                self.on_hung()

        self.run_exchange(self.era.ping(self.timeout), alive, unanswered)


def hangs(timeout: float) -> CallTimeout:
    return CallTimeout(f"it hangs, and answered no probe within {timeout:g} s")
