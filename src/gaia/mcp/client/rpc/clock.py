"""The one source of time. Durations and readings are seconds of a monotonic clock.

Everything that waits or measures asks a `Clock`, so that a test can let an hour pass without sleeping.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Protocol

__all__ = ["Clock", "Lock", "SystemClock"]


class Lock(Protocol):
    """The part of `threading.Lock` that waiting needs."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def acquire(self, lock: Lock, deadline: float | None) -> bool:
        """Take `lock`, waiting until `deadline` at the latest (None: for ever). False if it was not free by then."""

    def get(self, source: queue.SimpleQueue[Any], deadline: float | None) -> Any:
        """The next item of `source`; raises `queue.Empty` at `deadline` (None: waits for ever)."""


class SystemClock:
    monotonic = staticmethod(time.monotonic)

    def acquire(self, lock: Lock, deadline: float | None) -> bool:
        if deadline is None:
            return lock.acquire()
        remaining = min(deadline - time.monotonic(), threading.TIMEOUT_MAX)
        return lock.acquire(True, remaining) if remaining > 0 else lock.acquire(False)

    def get(self, source: queue.SimpleQueue[Any], deadline: float | None) -> Any:
        if deadline is None:
            return source.get()
        return source.get(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
