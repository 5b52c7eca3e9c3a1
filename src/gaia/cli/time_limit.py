"""`--timeout`: how long a command may take, from its start to its end.

When the time has passed, the main thread raises `OutOfTime`, wherever it waits, just as it raises KeyboardInterrupt at
Ctrl-C. So there is one limit for everything that a command waits for. Only the main thread may use this module.
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
"""How long after the limit the main thread is interrupted. What has a deadline of its own, such as a call, says more
about how it ended, and comes first."""

_CLOSE_SECONDS = 0.5
"""What servers have in any case to end by themselves."""


class OutOfTime(BaseException):
    """The command has taken as long as it may. Not an Exception: code that waits must not go on after it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the command was not done within {seconds:g} s (--timeout)")
        self.seconds = seconds


class _Limit:
    """The limit of the command that runs, if it has one."""

    seconds: float | None = None
    deadline = 0.0
    """A reading of the monotonic clock."""
    former: tuple[Any, float] = (signal.SIG_DFL, 0.0)
    """What was to be done about SIGALRM before, and when the next one was to come."""
    is_cut_short = False
    """Whether the end of a server was not waited for."""


def begin(seconds: float | None, started: float) -> None:
    """Limit the command to so many seconds since `started`, a reading of the monotonic clock. None is no limit."""
    if seconds is None:
        return
    end()
    _Limit.seconds, _Limit.deadline = seconds, started + seconds
    _Limit.former = (signal.signal(signal.SIGALRM, _interrupt), signal.getitimer(signal.ITIMER_REAL)[0])
    _arm(_Limit.deadline - time.monotonic())


def end() -> None:
    """The command has no limit any more."""
    if _Limit.seconds is not None:
        handler, seconds = _Limit.former
        signal.setitimer(signal.ITIMER_REAL, seconds)
        signal.signal(signal.SIGALRM, handler)
        _Limit.seconds = None


def remaining() -> float | None:
    """Seconds until the limit, in hundredths; None without one."""
    return None if _Limit.seconds is None else max(round(_Limit.deadline - time.monotonic(), 2), 0.01)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """A person is asked. Afterwards the command has its whole time again."""
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
    """Servers are stopped. What has not ended when the time has passed is left to `leave`.

    With `waits` False that is done soon, although there is time left.
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
    """End the process with this exit status if the end of a server was not waited for; otherwise do nothing.

    The interpreter would wait for that server now. The server's reaper, or the guard process, ends it instead.
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
