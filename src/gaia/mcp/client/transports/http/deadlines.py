"""Deadlines for what a channel does without a caller that waits for it: an interruption, when the time has come."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gaia.daemon_pool import DaemonPool
from gaia.log import get_logger

__all__ = ["Deadlines"]

logger = get_logger(__name__)


@dataclass(eq=False)
class _Limit:
    deadline: float
    """A reading of `time.monotonic`."""
    on_expired: Callable[[], object]


class Deadlines:
    """One thread for all limits of a channel; it runs while there are any. Thread-safe."""

    def __init__(self, name: str) -> None:
        """`name` is that of the thread."""
        self._pool = DaemonPool(name, 1, is_engine=True)
        self._changed = threading.Condition()
        """Owns the three below."""
        self._limits: set[_Limit] = set()
        self._running = False
        self._next = 0.0
        """When the thread looks at the limits again at the latest."""

    @contextlib.contextmanager
    def limit(self, seconds: float, on_expired: Callable[[], object]) -> Iterator[None]:
        """Call `on_expired` if the context is still entered after `seconds`.

        It runs on the thread of the deadlines, and must be quick and not raise. It may still be called when the
        context is just being left.
        """
        limit = _Limit(time.monotonic() + seconds, on_expired)
        self._add(limit)
        try:
            yield
        finally:
            with self._changed:
                self._limits.discard(limit)

    def close(self, seconds: float) -> bool:
        """Forget all limits, and end the thread; False if it is still there after `seconds`."""
        with self._changed:
            self._limits.clear()
            self._changed.notify()
        return self._pool.close(seconds)

    def _add(self, limit: _Limit) -> None:
        with self._changed:
            self._limits.add(limit)
            if not self._running:
                try:
                    self._running = self._pool.submit(self._run)
                except RuntimeError as error:
                    # No thread can be started. What has no deadline then still ends with the channel.
                    logger.warning("deadline_not_watched", error=str(error))
            elif limit.deadline < self._next:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = [limit for limit in self._limits if limit.deadline <= now]
                self._limits.difference_update(due)
                if not due:
                    if not self._limits:
                        self._running = False
                        return
                    self._next = min(limit.deadline for limit in self._limits)
                    self._changed.wait(self._next - now)
                    continue
            for limit in due:
                limit.on_expired()
