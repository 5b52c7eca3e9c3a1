"""`CallCounts`: how many calls each client has made of each server, how they ended, and how long they took."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from gaia.mcp.gateway.access.principal import Principal, metric_name

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Seconds."""


class _Durations:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """The last one is for what took longer than any bound."""
        self.seconds = 0.0


class CallCounts:
    """Belongs to the gateway's event loop. Every call comes here, so nothing is done that can be done when it is read.

    The clients of an issuer are counted as one, so there are as many counts as the configuration has clients, servers
    and issuers, and no more.
    """

    def __init__(self) -> None:
        self.ended: dict[tuple[str, str, str], int] = {}
        """By client (empty if clients have no names), server and outcome."""
        self._durations: dict[tuple[str, str], _Durations] = {}

    def add(self, client: Principal | None, server: str, outcome: str, seconds: float) -> None:
        """A call has ended; `outcome` is ``ok``, ``tool_error``, or an error type."""
        name = metric_name(None if client is None else client.name)
        key = (name, server, outcome)
        self.ended[key] = self.ended.get(key, 0) + 1
        durations = self._durations.get((name, server))
        if durations is None:
            durations = self._durations[name, server] = _Durations()
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.seconds += seconds

    def durations(self) -> dict[tuple[str, str], tuple[list[int], float]]:
        """By client and server: how many calls took no longer than each bound, then all; and their seconds in all."""
        return {key: (list(accumulate(one.counts)), one.seconds) for key, one in self._durations.items()}
