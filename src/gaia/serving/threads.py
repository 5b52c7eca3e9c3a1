"""`WorkerThreads`: runs an agent's synchronous code for an event loop.

The loop's own executor is unsuitable: a tool that never returns must not keep the process alive, so the threads are
daemons. A cancelled call must not make room for another one, so its thread counts until it has finished.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable
from typing import TypeVar

from gaia.runtime.threads import DaemonPool, PoolExhausted

ResultT = TypeVar("ResultT")

_OF_THE_LOOP = (StopIteration, KeyboardInterrupt, SystemExit, concurrent.futures.CancelledError)
"""Exceptions that a future rejects, or that would end the loop or its task because of a single tool."""


class TooManyCalls(Exception):
    """All threads are busy and no further call may wait, or the system cannot start a thread."""


class WorkerThreads:
    """At most `limit` threads, started when needed, and at most `waiting` waiting calls."""

    def __init__(self, limit: int = 32, waiting: int = 1024) -> None:
        self._pool = DaemonPool("gaia-serve", limit, max_waiting=waiting)

    async def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Call `function` on a thread, with the context variables of the caller.

        A cancelled caller does not wait for the thread, and a call that has not begun is skipped. Raises
        `TooManyCalls`.
        """
        future: concurrent.futures.Future[ResultT] = concurrent.futures.Future()
        context = contextvars.copy_context()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(function))
            except _OF_THE_LOOP as error:
                future.set_exception(RuntimeError(f"the call raised {type(error).__name__}"))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
                future.set_exception(error)

        try:
            self._pool.submit(call)
        except PoolExhausted as exhausted:
            raise TooManyCalls from exhausted
        return await asyncio.wrap_future(future)

    def close(self, timeout: float = 0.0) -> None:
        """Let the threads end after the present calls, and wait up to `timeout` seconds for that."""
        self._pool.drain(timeout)
