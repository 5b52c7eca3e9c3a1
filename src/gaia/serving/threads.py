"""`WorkerThreads`: an agent's synchronous code, called from an event loop.

Why not the loop's own executor: a tool that never returns must neither keep the process from ending (so the threads are
daemons) nor make room for another of its kind by being cancelled (so a thread counts until it is really done).
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["TooManyCalls", "WorkerThreads"]

ResultT = TypeVar("ResultT")


class TooManyCalls(Exception):
    """All threads are busy, and as many calls wait as may."""


@dataclass(frozen=True, slots=True)
class _Job:
    function: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class WorkerThreads:
    """At most `limit` threads, started when they are needed, and at most `waiting` calls that wait for one."""

    def __init__(self, limit: int = 32, waiting: int = 1024) -> None:
        self._limit = limit
        self._waiting = waiting
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._pending = 0
        """Calls that no thread has finished yet."""

    async def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Call `function` on a thread, with the context variables of the caller.

        A caller that is cancelled does not wait for the thread, and a call that has not begun by then is left out.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()
        with self._lock:
            if self._pending >= self._limit + self._waiting:
                raise TooManyCalls
            self._pending += 1
            if len(self._threads) < min(self._pending, self._limit):
                thread = threading.Thread(target=self._work, name=f"gaia-serve-{len(self._threads) + 1}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(_Job(function, contextvars.copy_context(), loop, future))
        return await future

    def close(self, timeout: float = 0.0) -> None:
        """Let idle threads end, and wait up to `timeout` seconds for the busy ones."""
        deadline = time.monotonic() + timeout
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                if not job.future.cancelled():
                    result = job.context.run(job.function)
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it belongs to the caller
                error = raised
            with self._lock:
                self._pending -= 1
            try:
                job.loop.call_soon_threadsafe(_finish, job.future, result, error)
            except RuntimeError:
                # The loop is closed: the server has ended, and nobody waits.
                return
            # Nothing of a finished call is kept while the next one is waited for.
            del job, result, error


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, (StopIteration, KeyboardInterrupt, SystemExit)):
        # A future does not take the first; the others would end the loop for one bad tool.
        future.set_exception(RuntimeError(f"the call raised {type(error).__name__}"))
    else:
        future.set_exception(error)
