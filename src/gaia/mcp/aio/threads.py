"""The threads for what the engine only does while a thread waits: connecting, disconnecting, and listing."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from gaia.cancellation import CancelScope
from gaia.daemon_pool import DaemonPool
from gaia.mcp.aio.loop_inbox import release, running_loop_inbox

__all__ = ["in_thread", "until_done"]

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_SECONDS = 0.25

_threads = DaemonPool("mcp-aio", 32, idle_seconds=_IDLE_SECONDS)
_stopping = DaemonPool("mcp-aio-stop", 8, idle_seconds=_IDLE_SECONDS)
"""For what ends servers, which must not wait for those that are being started."""


class _Work:
    """One function on a thread, and the loop that is told of its end."""

    def __init__(self, function: Callable[[], Any], pool: DaemonPool) -> None:
        self._function = function
        self._inbox = running_loop_inbox()
        self.scope = CancelScope()
        """Cancels the calls that the function makes."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._result: Any = None
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        pool.submit(lambda: context.run(self._run))

    def _run(self) -> None:
        try:
            with self.scope.entered():
                self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - the task that waits raises it
            self._error = error
        self._inbox.post(functools.partial(release, self.ended))

    def outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function on a thread, in this context. If the task is cancelled, so are the calls that the function makes.

    The task does not wait then until the function has returned.
    """
    work = _Work(functools.partial(function, *args, **kwargs), _threads)
    try:
        await work.ended
    except BaseException:
        work.scope.cancel()
        raise
    result: T = work.outcome()
    return result


async def until_done(
    function: Callable[[], T], on_cancel: Callable[[], object] = lambda: None, *, stops: bool = False
) -> T:
    """Run a function on a thread, and wait for its end in any case.

    If the task is cancelled, `on_cancel` is called, which should have the function end soon; the cancellation goes on
    when it has. `stops` says that the function ends servers.
    """
    work = _Work(function, _stopping if stops else _threads)
    cancelled: asyncio.CancelledError | None = None
    while not work.ended.done():
        try:
            # Unlike the future itself, this can be cancelled without any harm to it.
            await asyncio.wait([work.ended])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        raise cancelled
    result: T = work.outcome()
    return result
