"""How many replicas a server should have, by the calls that are under way or wait."""

from __future__ import annotations

import math

from gaia.mcp.config.placement import Replicas

_BUSY_SECONDS = 2.0
"""For so long there must have been too few, before one is added."""
_IDLE_SECONDS = 60.0
"""For so long there must have been too many, before one is removed."""


class Autoscaling:
    """Decides; for one thread. A short burst adds nothing, and a short pause removes nothing."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._few_since: float | None = None
        self._many_since: float | None = None
        self._least = 0
        """What was needed at the least while there were too few."""
        self._most = 0
        """What was needed at the most while there were too many."""

    def wanted(self, under_way: int, now_there: int, now: float) -> int:
        """How many there should be. `now` is a reading of a clock in seconds, that never goes back."""
        limits = self._replicas
        needed = min(max(math.ceil(under_way / limits.target_in_flight), limits.min), limits.max)
        if needed > now_there:
            self._many_since = None
            if self._few_since is None:
                self._few_since, self._least = now, needed
            self._least = min(self._least, needed)
            if now - self._few_since < _BUSY_SECONDS:
                return now_there
            self._few_since = None
            return self._least
        self._few_since = None
        if needed == now_there:
            self._many_since = None
            return now_there
        if self._many_since is None:
            self._many_since, self._most = now, needed
        self._most = max(self._most, needed)
        if now - self._many_since < _IDLE_SECONDS:
            return now_there
        self._many_since = None
        return self._most
