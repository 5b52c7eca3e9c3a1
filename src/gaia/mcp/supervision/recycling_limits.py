"""What one process of a server may use up before a fresh one takes its place."""

from __future__ import annotations

from typing import Literal

import msgspec

from gaia.runtime.clock import require_seconds

RecyclingReason = Literal["max_lifetime", "max_calls", "max_memory", "requested", "reconfigured"]
"""Why a server that works is replaced: it has reached a limit, or the application wants a fresh process, perhaps with
another configuration."""

_MIN_MEMORY = 16 * 1024**2
"""Less than this is a mistake in the unit."""


class RecyclingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a server may use up before a fresh one takes its place; None is without a limit.

    Raises ValueError for unusable figures.
    """

    max_lifetime: float | None = None
    """Seconds since it became ready."""
    max_calls: int | None = None
    """Calls and other requests of the application."""
    max_memory: int | None = None
    """Bytes of main memory, of the server and of all processes that it has started."""

    def __post_init__(self) -> None:
        if self.max_lifetime is not None:
            require_seconds("max_lifetime", self.max_lifetime)
        for name in ("max_calls", "max_memory"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name}: must be a whole number from 1 upwards, got {value!r}")
        if self.max_memory is not None and self.max_memory < _MIN_MEMORY:
            raise ValueError(f"max_memory: must be at least 16M, got {self.max_memory}")
