"""Work on other threads that can be abandoned.

The threads are daemons and nobody joins them: a thread cannot be stopped from outside, so one that is stuck in a tool
must hold up neither a cancelled run nor the end of the process.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gaia.cancellation import CancelScope

__all__ = ["Done", "Said", "WorkCancelled", "work"]

Key = TypeVar("Key")
Value = TypeVar("Value")

Say = Callable[[str], None]
"""Given to a job, to report something before it is done."""


class WorkCancelled(Exception):
    """The scope of the work was cancelled. Jobs that have begun may still be running."""


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Done(Generic[Key, Value]):
    """The end of a job: `value` is what it returned, unless `error` is what it raised."""

    key: Key
    value: Value
    error: BaseException | None
    duration: float
    """Seconds."""


def work(
    jobs: Mapping[Key, Callable[[Say], Value]], *, scope: CancelScope, name: str, limit: int
) -> Iterator[Said | Done[Key, Value]]:
    """Run the jobs, at most `limit` at once, and tell of what they say and of their ends, in the order of happening.

    Each runs in a copy of the caller's context. Raises `WorkCancelled` as soon as `scope` is cancelled; jobs that have
    not begun by then never do.
    """
    waiting = deque(jobs.items())
    mail: queue.SimpleQueue[Said | Done[Key, Value] | None] = queue.SimpleQueue()

    def run_jobs() -> None:
        while not scope.cancelled:
            try:
                key, job = waiting.popleft()
            except IndexError:
                return
            started = time.monotonic()
            value: Any = None
            error: BaseException | None = None
            try:
                value = job(lambda text: mail.put(Said(text)))
            except BaseException as caught:  # noqa: BLE001 - it is raised again where the results are read
                error = caught
            mail.put(Done(key, value, error, time.monotonic() - started))

    forget = scope.on_cancel(lambda: mail.put(None))
    try:
        for number in range(min(limit, len(jobs))):
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(run_jobs,), name=f"{name}-{number + 1}", daemon=True).start()
        unfinished = len(jobs)
        while unfinished:
            letter = mail.get()
            if letter is None:
                raise WorkCancelled
            unfinished -= isinstance(letter, Done)
            yield letter
    finally:
        forget()
