"""`OutputChecks`: a server's results are compared with what its tools have promised, on a thread of the server's own.

A comparison may take a second. A call waits for it only if a wrong result makes the call fail. Other servers do not.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context, copy_context
from typing import Any

import orjson

from gaia.mcp.errors import InvalidResponse
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.threads import DaemonPool, PoolExhausted

Check = Callable[[Mapping[str, Any]], InvalidResponse | None]
"""Logs what is wrong with a result, and returns the error that the call fails with, if any. May take seconds."""

_MAX_RESULTS = 100
_MAX_BYTES = 4 * 1024 * 1024
"""Of the results that wait for their comparison."""

_CHEAP_SECONDS = 0.05
_REST = 9
"""After a comparison that was not cheap, the thread makes none for so many times as long. So they take a tenth of the
time."""

_IDLE_SECONDS = 1.0
_JOIN_SECONDS = 2.0


class OutputChecks:
    """Those of one server. Its thread runs while there is something to do. Thread-safe.

    Results that are only logged are compared one at a time. Those that come faster than that are left out.
    """

    def __init__(self, server: str, threads: DaemonPool | None = None) -> None:
        """`threads` are for tests."""
        self._threads = threads or DaemonPool(f"mcp-{server}-checks", 1, idle_seconds=_IDLE_SECONDS, is_engine=True)
        self._lock = reentrant_lock()
        """Owns the rest."""
        self._waiting: deque[tuple[OutputCheck, bytes]] = deque()
        self._size = 0
        self._is_running = False
        self._rests_until = 0.0
        """A reading of the monotonic clock: what comes before is left out."""
        self._ends = 0
        """How often `end` was called."""

    def submit(self, task: Callable[[], object]) -> None:
        """Run a task on the thread. Raises `PoolExhausted`."""
        self._threads.submit(task)

    def prepare(self, steps: Iterator[object]) -> None:
        """Advance `steps` to its end. Checks that come meanwhile go between its steps."""
        ends = self._ends

        def step() -> None:
            for _ in steps:
                # With the lock: a step that came after `end` would start a thread that `end` does not wait for.
                with self._lock:
                    if ends == self._ends:
                        self._begin(step)
                return

        self._begin(step)

    def add(self, check: OutputCheck, result: bytes) -> None:
        """Compare a result soon, for the log. Never blocks."""
        with self._lock:
            waiting = len(self._waiting)
            is_full = waiting >= _MAX_RESULTS or (waiting and self._size + len(result) > _MAX_BYTES)
            if is_full or time.monotonic() < self._rests_until:
                return
            self._waiting.append((check, result))
            self._size += len(result)
            begins, self._is_running = not self._is_running, True
        if begins and not self._begin(self._run):
            self._is_running = False

    def end(self) -> None:
        """End the thread, after what waits. Returns after two seconds at the latest."""
        with self._lock:
            self._ends += 1
        self._threads.drain(_JOIN_SECONDS)

    def _begin(self, task: Callable[[], object]) -> bool:
        try:
            self._threads.submit(task)
        except PoolExhausted:
            return False
        return True

    def _run(self) -> None:
        try:
            while (task := self._next()) is not None:
                check, result = task
                began = time.thread_time()
                # Such as numbers that JSON allows and this decoder does not: the caller has the result as it is.
                with contextlib.suppress(ValueError, RecursionError):
                    check.problem(orjson.loads(result))
                self._spent(time.thread_time() - began)
        except BaseException:
            # The next result begins anew.
            self._is_running = False
            raise

    def _spent(self, seconds: float) -> None:
        if seconds > _CHEAP_SECONDS:
            with self._lock:
                self._rests_until = time.monotonic() + _REST * seconds
                self._waiting.clear()
                self._size = 0

    def _next(self) -> tuple[OutputCheck, bytes] | None:
        with self._lock:
            if not self._waiting:
                self._is_running = False
                return None
            check, result = self._waiting.popleft()
            self._size -= len(result)
            return check, result


class OutputCheck:
    """The check of one call's result. Logs in the context of the caller, whose trace it belongs to."""

    __slots__ = ("_check", "_checks", "_context", "fails_call")

    def __init__(self, checks: OutputChecks, check: Check, *, fails_call: bool) -> None:
        """To be made by the caller's thread."""
        self._checks = checks
        self._check = check
        self._context: Context = copy_context()
        self.fails_call = fails_call
        """Whether the call fails of a result that does not fit. Otherwise no call has to wait for the check."""

    def problem(self, result: Mapping[str, Any]) -> InvalidResponse | None:
        """Compare a result now. Returns the error that the call fails with, if any. May take seconds."""
        return self._context.run(self._check, result)

    def submit(self, task: Callable[[], object]) -> None:
        """Run a task, such as `problem`, on the thread for the checks of the server. Raises `PoolExhausted`."""
        self._checks.submit(task)

    def note(self, result: Mapping[str, Any]) -> None:
        """Compare a result soon, for the log. The caller may change it from now on."""
        if result.get("isError") is True:
            return
        part = {"structuredContent": result["structuredContent"]} if "structuredContent" in result else {}
        # What is no JSON comes from a transport of the application, and numbers may be too large for this encoder.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            self.note_bytes(orjson.dumps(part))

    def note_bytes(self, result: bytes) -> None:
        """The same for a result that is still JSON."""
        self._checks.add(self, result)
