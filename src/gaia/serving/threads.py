"""`WorkerThreads`: runs an agent's synchronous code for an event loop.

The loop's own executor does not fit. A tool that never returns must not keep the process alive, so the threads are
daemons. Cancelling its call must not make room for another one, so a thread counts until it has really finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

from gaia.runtime.threads import DaemonPool, PoolExhausted

ResultT = TypeVar("ResultT")


class TooManyCalls(Exception):
    """All threads are busy and no further call may wait, or the system starts no thread."""


class WorkerThreads:
    """At most `limit` threads, started when needed, and at most `waiting` calls that wait for one."""

    def __init__(self, limit: int = 32, waiting: int = 1024) -> None:
        self._pool = DaemonPool("gaia-serve", limit, max_waiting=waiting)

    async def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Call `function` on a thread, with the context variables of the caller.

        A cancelled caller does not wait for the thread. A call that has not begun by then is skipped. Raises
        `TooManyCalls`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()
        context = contextvars.copy_context()

        def finish(result: Any, error: BaseException | None) -> None:
            # The loop is closed if the server has stopped meanwhile. Then nothing waits for the future.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, future, result, error)

        def call() -> None:
            try:
                result = None if future.cancelled() else context.run(function)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
                finish(None, error)
            else:
                finish(result, None)

        try:
            self._pool.submit(call)
        except PoolExhausted as exhausted:
            raise TooManyCalls from exhausted
        return await future

    def close(self, timeout: float = 0.0) -> None:
        """Let the threads end after the calls so far, and wait up to `timeout` seconds for that."""
        self._pool.drain(timeout)


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, (StopIteration, KeyboardInterrupt, SystemExit)):
        # A future rejects StopIteration; the others would end the loop because of one tool.
        future.set_exception(RuntimeError(f"the call raised {type(error).__name__}"))
    else:
        future.set_exception(error)
