"""Runs functions that wait, on separate threads: connecting, disconnecting, and listing."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from gaia.mcp.errors import CallCancelled
from gaia.mcp.requests.client_requests import SCOPE_CANCELLED
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.loop_work import release, running_loop_work
from gaia.runtime.threads import DaemonPool

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_SECONDS = 0.25

_MAX_THREADS = 1024
"""As many as for callbacks, so that many hanging servers do not delay others."""

_threads = DaemonPool("mcp-aio", _MAX_THREADS, idle_seconds=_IDLE_SECONDS)
_stopping = DaemonPool("mcp-aio-stop", _MAX_THREADS, idle_seconds=_IDLE_SECONDS)
"""For functions that end servers: these must not wait for servers that are being started."""


class _Work:
    """A function on a thread. It notifies the loop of its end."""

    def __init__(self, function: Callable[[], Any], pool: DaemonPool) -> None:
        self._function = function
        self._work = running_loop_work()
        self.scope = CancelScope()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._result: Any = None
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        pool.submit(lambda: context.run(self._run))

    def _run(self) -> None:
        try:
            if self.scope.cancelled:
                raise CallCancelled(SCOPE_CANCELLED)
            with self.scope.entered():
                self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - the task that waits raises it
            self._error = error
        self._work.post(functools.partial(release, self.ended))

    def outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function on a thread, in this context. A cancelled task cancels the function's calls, but does not wait."""
    work = _Work(functools.partial(function, *args, **kwargs), _threads)
    try:
        await work.ended
    except BaseException:
        work.scope.cancel()
        raise
    result: T = work.outcome()
    return result


async def until_done(function: Callable[[], T], on_cancel: Callable[[], object]) -> T:
    """Run a function on a thread, and wait for its end in any case.

    If the task is cancelled, the function's calls are cancelled, and `on_cancel` is called to end the function soon.
    The task continues with its cancellation when the function has ended.
    """
    work = _Work(function, _threads)
    cancelled = await _end_of(work, on_cancel)
    if cancelled is not None:
        raise cancelled
    result: T = work.outcome()
    return result


async def stopping(function: Callable[[], object]) -> None:
    """Run a function that ends servers, and wait for its end; a cancellation of the task takes effect after it."""
    work = _Work(function, _stopping)
    cancelled = await _end_of(work, None)
    work.outcome()
    if cancelled is not None:
        raise cancelled


def stop_soon(function: Callable[[], object]) -> None:
    _stopping.submit(function)


async def _end_of(work: _Work, on_cancel: Callable[[], object] | None) -> asyncio.CancelledError | None:
    cancelled: asyncio.CancelledError | None = None
    while not work.ended.done():
        try:
            # Unlike `await work.ended`, this does not cancel the future when the task is cancelled.
            await asyncio.wait([work.ended])
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                work.scope.cancel()
                on_cancel()
    return cancelled
