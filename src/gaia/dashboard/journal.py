"""What has happened, for everybody who watches: a bounded list that readers follow at their own pace.

Whoever writes never waits for a reader and wakes nobody: it may be the thread of a call. A reader that fell too far
behind is told so, and starts afresh.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import Any, NamedTuple

__all__ = ["Entry", "Journal"]


class Entry(NamedTuple):
    kind: str
    """``"event"`` or ``"call"``."""
    data: dict[str, Any]
    """JSON values."""


class Journal:
    """The last `limit` entries. Thread-safe."""

    def __init__(self, limit: int = 2000) -> None:
        self._lock = threading.Lock()
        """Owns both below; held for a few operations on them only."""
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._written = 0

    @property
    def position(self) -> int:
        """Where a reader begins that wants to see what comes from now on."""
        with self._lock:
            return self._written

    def write(self, kind: str, data: dict[str, Any]) -> None:
        with self._lock:
            self._entries.append(Entry(kind, data))
            self._written += 1

    def read(self, position: int) -> tuple[list[Entry], int] | None:
        """What was written since `position`, and where to go on; None if some of it is gone already."""
        with self._lock:
            missed = self._written - position
            if missed > len(self._entries):
                return None
            return list(islice(self._entries, len(self._entries) - missed, None)), self._written
