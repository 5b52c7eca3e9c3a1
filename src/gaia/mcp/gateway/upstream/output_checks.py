"""`OutputChecks`: results that were passed on are compared with what their tools have promised, for the log."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gaia.daemon_pool import DaemonPool, PoolExhausted
from gaia.locks import reentrant_lock

__all__ = ["OutputChecks"]

Check = Callable[[Mapping[str, Any]], object]
"""Logs what is wrong with a result. May take seconds."""

_MAX_RESULTS = 100
_MAX_BYTES = 4 * 1024 * 1024
"""Of the results that wait for their comparison."""


class OutputChecks:
    """Those of one server, one at a time, so that they slow down the event loop as little as can be. Thread-safe.

    Results that come faster than they can be compared are left out.
    """

    def __init__(self, threads: DaemonPool) -> None:
        """`threads` run the checks."""
        self._threads = threads
        self._lock = reentrant_lock()
        """Owns the rest."""
        self._waiting: deque[tuple[Check, bytes]] = deque()
        self._size = 0
        self._is_running = False

    def add(self, check: Check, result: bytes) -> None:
        """Compare a result soon. Never blocks."""
        with self._lock:
            waiting = len(self._waiting)
            if waiting >= _MAX_RESULTS or (waiting and self._size + len(result) > _MAX_BYTES):
                return
            self._waiting.append((check, result))
            self._size += len(result)
            begins, self._is_running = not self._is_running, True
        if begins:
            try:
                self._threads.submit(self._run)
            except PoolExhausted:
                self._is_running = False

    def _run(self) -> None:
        try:
            while (task := self._next()) is not None:
                check, result = task
                # Such as numbers that JSON allows and this decoder does not: the client has the result as it is.
                with contextlib.suppress(ValueError, RecursionError):
                    check(orjson.loads(result))
        except BaseException:
            # The next result begins anew.
            self._is_running = False
            raise

    def _next(self) -> tuple[Check, bytes] | None:
        with self._lock:
            if not self._waiting:
                self._is_running = False
                return None
            check, result = self._waiting.popleft()
            self._size -= len(result)
            return check, result
