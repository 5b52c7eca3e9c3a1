"""How much memory the processes of a server have."""

from __future__ import annotations

import time
from collections import defaultdict

from gaia.runtime.locks import reentrant_lock

_FRESH_SECONDS = 2.0
"""Many servers are looked at by one walk over the processes of the system, which takes milliseconds."""


class _ProcessTable:
    """Which process started which. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns the two below."""
        self._children: dict[int, list[int]] = {}
        self._as_of = float("-inf")

    def children(self) -> dict[int, list[int]]:
        """By the process id of the parent; some seconds old at most."""
        import psutil

        with self._lock:
            if time.monotonic() - self._as_of > _FRESH_SECONDS:
                found: defaultdict[int, list[int]] = defaultdict(list)
                for process in psutil.process_iter(["ppid"]):
                    found[process.info["ppid"]].append(process.pid)
                self._children, self._as_of = dict(found), time.monotonic()
            return self._children


_table = _ProcessTable()


def tree_memory(pid: int, *, with_root: bool = True) -> int:
    """The resident memory in bytes of a process and its descendants, or of the descendants alone.

    Pages that several of them share count for each of them. A process that ended meanwhile has none.
    """
    import psutil

    children = _table.children()
    total, pending = 0, [pid] if with_root else [*children.get(pid, ())]
    while pending:
        each = pending.pop()
        pending.extend(children.get(each, ()))
        try:
            total += psutil.Process(each).memory_info().rss
        except psutil.Error:
            continue
    return total
