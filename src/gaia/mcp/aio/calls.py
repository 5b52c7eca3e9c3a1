"""Awaiting calls: each is submitted to the engine, and the loop is woken up when it has ended."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from gaia.cancellation import current_scope
from gaia.exception_text import exception_text
from gaia.log import get_logger
from gaia.mcp.aio.loop_inbox import LoopInbox, release, running_loop_inbox
from gaia.mcp.aio.threads import in_thread
from gaia.mcp.client.supervision.callbacks import Callbacks, Lane
from gaia.mcp.client.supervision.caller import SCOPE_CANCELLED, CallFuture
from gaia.mcp.client.supervision.client_request import CallOptions, OnProgress
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.client.tool_result import ToolResult
from gaia.mcp.errors import CallCancelled, MCPError, NotConnected

__all__ = ["call_tool", "submitted"]

logger = get_logger(__name__)

Submit = Callable[[CallOptions, Callbacks], CallFuture]
"""Submits a request whose callbacks run where the second argument says."""


async def call_tool(
    tool_calls: ToolCalls, tool_name: str, arguments: dict[str, Any] | None, options: CallOptions
) -> ToolResult:
    """Like `ToolCalls.call`, to be awaited."""
    if tool_calls.waits_in_caller:
        return await in_thread(tool_calls.call, tool_name, arguments, options)
    try:
        return await submitted(functools.partial(tool_calls.submit, tool_name, arguments), options)
    except NotConnected:
        raise
    except MCPError as error:
        return tool_calls.failed(error, tool_name, arguments)


async def submitted(submit: Submit, options: CallOptions) -> ToolResult:
    """Submit a call and wait for its end. Raises `MCPError`.

    If the task is cancelled, or its `CancelScope` is, so is the call, and the server is told. `on_progress` runs in
    this task, and all progress has been reported when this returns.
    """
    inbox = running_loop_inbox()
    if options.on_progress is None:
        future = submit(options, inbox)
        return await _outcome(future, _end_of(future, inbox))
    reports = _Reports(options.on_progress, inbox)
    future = submit(msgspec.structs.replace(options, on_progress=reports.hold), reports.lane)
    return await _outcome(future, reports.until_end_of(future))


async def _outcome(future: CallFuture, end: Awaitable[None]) -> ToolResult:
    """The result of a call, after `end`, which waits for its end."""
    scope = current_scope()
    forget = None if scope is None else scope.on_cancel(future.cancel)
    try:
        await end
        return future.result()
    except concurrent.futures.CancelledError:
        raise CallCancelled(SCOPE_CANCELLED) from None
    except BaseException:
        # Does nothing if the call itself has failed.
        future.cancel()
        raise
    finally:
        if forget is not None:
            forget()


def _end_of(future: CallFuture, inbox: LoopInbox) -> asyncio.Future[None]:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wake = functools.partial(release, ended)
    future.on_end(lambda: inbox.post(wake))
    return ended


class _Reports:
    """Reports of progress, on their way to the task that waits for the call. The lane bounds them."""

    def __init__(self, on_progress: OnProgress, inbox: LoopInbox) -> None:
        self._on_progress = on_progress
        self._inbox = inbox
        self._arrived = asyncio.Event()
        self.lane = Lane(lambda _: self._wake())
        self._held: object = None
        """What `on_progress` has returned."""

    def hold(self, progress: float, total: float | None, message: str | None) -> None:
        self._held = self._on_progress(progress, total, message)

    async def until_end_of(self, future: CallFuture) -> None:
        """Report in this task what the lane has, until the call has ended."""
        future.on_end(self._wake)
        while True:
            ended = future.done()
            # Everything is in the lane before the call has ended.
            while (task := self.lane.take()) is not None:
                task()
                held, self._held = self._held, None
                if inspect.isawaitable(held):
                    await _finished(held)
            if ended:
                return
            await self._arrived.wait()
            self._arrived.clear()

    def _wake(self) -> None:
        self._inbox.post(self._arrived.set)


async def _finished(report: Awaitable[object]) -> None:
    try:
        await report
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the call must not fail of it
        logger.error("progress_callback_failed", error=exception_text(error))
