"""Work on other threads that can be abandoned.

A thread cannot be stopped from outside, so a thread that is stuck in a tool must hold up neither a cancelled run nor
the end of the process.
"""

from __future__ import annotations

import contextvars
import functools
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gaia.runtime.cancellation import CancelScope
from gaia.runtime.threads import DaemonPool

Key = TypeVar("Key")
Value = TypeVar("Value")

Say = Callable[[str], None]
"""Given to a job, to report a text before it is done."""


class WorkCancelled(Exception):
    """The scope of the work was cancelled. Jobs that have begun may still be running."""


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
) -> Iterator[str | Done[Key, Value]]:
    """Run the jobs, at most `limit` at once, and yield the texts that they say and their ends, in order.

    Each runs in a copy of the caller's context. Raises `WorkCancelled` as soon as `scope` is cancelled; jobs that have
    not begun by then never do. Raises RuntimeError if the system starts no thread for them.
    """
    events: queue.SimpleQueue[str | Done[Key, Value] | None] = queue.SimpleQueue()

    def run(key: Key, job: Callable[[Say], Value]) -> None:
        if scope.cancelled:
            return
        started = time.monotonic()
        value: Any = None
        error: BaseException | None = None
        try:
            value = job(events.put)
        except BaseException as caught:  # noqa: BLE001 - it is raised again where the results are read
            error = caught
        events.put(Done(key, value, error, time.monotonic() - started))

    pool = DaemonPool(name, limit)
    forget = scope.on_cancel(lambda: events.put(None))
    try:
        for key, job in jobs.items():
            pool.submit(functools.partial(contextvars.copy_context().run, run, key, job))
        unfinished = len(jobs)
        while unfinished:
            event = events.get()
            if event is None:
                raise WorkCancelled
            unfinished -= isinstance(event, Done)
            yield event
    finally:
        forget()
        pool.close()
