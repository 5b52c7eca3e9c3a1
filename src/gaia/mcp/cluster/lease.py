"""How long a host may act for its driver: until the driver has not asked for events for some time.

A node that is cut off, or stopped, does not notice it. Meanwhile the engine may have placed the server on another
node, where the driver's calls go now. So a host that comes back must find out by itself that its time is over, before
it does anything else, and by its own clock alone.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from gaia.runtime.clock import Clock
from gaia.runtime.locks import TimedQueue, reentrant_lock


class Lease:
    """Ends once, if it is not renewed in time. Thread-safe."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds = seconds
        self.clock = clock
        self._lock = reentrant_lock()
        """Owns the next two."""
        self._deadline = clock.monotonic() + seconds
        self._is_over = False
        self._ended: TimedQueue[None] = TimedQueue()
        """Has something in it when nothing has to be watched any more."""

    @property
    def is_over(self) -> bool:
        """Whether the time has passed without a renewal. That stays so."""
        with self._lock:
            self._is_over = self._is_over or self.clock.monotonic() >= self._deadline
            return self._is_over

    @property
    def silence(self) -> float:
        """Seconds since it was renewed."""
        with self._lock:
            return max(0.0, self.clock.monotonic() - self._deadline + self.seconds)

    def renew(self) -> bool:
        """Begin the time anew. False if it is over."""
        with self._lock:
            if self.is_over:
                return False
            self._deadline = self.clock.monotonic() + self.seconds
            return True

    def is_stale(self, sent: float) -> bool:
        """Whether something that was sent at `sent`, a reading of this clock, is too old, or the lease is over."""
        return self.is_over or self.clock.monotonic() - sent >= self.seconds

    def watch(self, on_over: Callable[[], object], name: str) -> None:
        """Have `on_over` called, on a thread of its own, when the lease is over, unless `end` was called before."""

        def run() -> None:
            while not self.is_over:
                with contextlib.suppress(queue.Empty):
                    self.clock.get(self._ended, self._deadline)
                    return
            on_over()

        threading.Thread(target=run, name=name, daemon=True).start()

    def end(self) -> None:
        """Nothing has to be watched any more."""
        self._ended.put(None)


class HostClock:
    """What the clock of a host shows, as the driver knows it: the same or earlier, never later. Thread-safe."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def heard(self, reading: float, now: float) -> None:
        """An answer in which the clock shows `reading` has come; `now` is a reading of the driver's own clock."""
        self._ahead = reading - now

    def at(self, now: float) -> float:
        return now + self._ahead
