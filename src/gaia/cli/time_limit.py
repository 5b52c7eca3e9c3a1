"""`--timeout`: the time limit of a command, from its start to its end.

When the time has passed, the main thread raises `OutOfTime` wherever it waits, like KeyboardInterrupt at Ctrl-C. So one
limit covers all waits of a command. Only the main thread may use this module.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

_LATE_SECONDS = 0.1
"""Seconds after the limit until the main thread is interrupted. A call's own deadline has a better message."""

_CLOSE_SECONDS = 0.5
"""Seconds that servers get at least to end by themselves."""


class OutOfTime(BaseException):
    """The command has used up its time. Not an Exception, so that waiting code does not catch it and continue."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the command was not done within {seconds:g} s (--timeout)")
        self.seconds = seconds


class _Limit:
    """The limit of the running command; `seconds` is None without one."""

    seconds: float | None = None
    deadline = 0.0
    former: tuple[Any, float] = (signal.SIG_DFL, 0.0)
    """The former handler of SIGALRM, and the seconds until its next signal."""
    is_cut_short = False
    """Whether the command did not wait for the end of a server."""


def begin(seconds: float | None, started: float) -> None:
    """Limit the command to `seconds` since `started`, a reading of the monotonic clock. None: no limit."""
    if seconds is None:
        return
    end()
    _Limit.seconds, _Limit.deadline = seconds, started + seconds
    _Limit.former = (signal.signal(signal.SIGALRM, _interrupt), signal.getitimer(signal.ITIMER_REAL)[0])
    _arm(_Limit.deadline - time.monotonic())


def end() -> None:
    if _Limit.seconds is not None:
        handler, seconds = _Limit.former
        signal.setitimer(signal.ITIMER_REAL, seconds)
        signal.signal(signal.SIGALRM, handler)
        _Limit.seconds = None


def remaining() -> float | None:
    return None if _Limit.seconds is None else max(round(_Limit.deadline - time.monotonic(), 2), 0.01)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pause the limit while a person is asked. Afterwards the command has its whole time again."""
    if _Limit.seconds is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        _Limit.deadline = time.monotonic() + _Limit.seconds
        _arm(_Limit.seconds)


@contextlib.contextmanager
def closing(*, waits: bool = True) -> Iterator[None]:
    """Stop servers within the limit. If the time passes, `leave` ends the process without waiting for them.

    With `waits` False the servers have only `_CLOSE_SECONDS`, even if time is left.
    """
    if _Limit.seconds is None:
        yield
        return
    left = _Limit.deadline - time.monotonic() if waits else 0.0
    _arm(max(left, _CLOSE_SECONDS))
    try:
        yield
    except OutOfTime:
        _Limit.is_cut_short = True
    finally:
        _arm(_Limit.deadline - time.monotonic() if left > 0 and not _Limit.is_cut_short else None)


def leave(status: Any) -> None:
    """End the process with this status if the command did not wait for the end of a server; otherwise do nothing.

    The interpreter would now wait for that server. The server's reaper or the guard process ends it instead.
    """
    if _Limit.is_cut_short:
        if "opentelemetry.sdk.trace" in sys.modules:
            from opentelemetry import trace

            flush = getattr(trace.get_tracer_provider(), "force_flush", None)
            if flush is not None:
                flush(int(_CLOSE_SECONDS * 1000))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def _arm(seconds: float | None) -> None:
    late = 0.0 if seconds is None else max(seconds, 0.0) + _LATE_SECONDS
    signal.setitimer(signal.ITIMER_REAL, late)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if _Limit.seconds is not None:
        raise OutOfTime(_Limit.seconds)
