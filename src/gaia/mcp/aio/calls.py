"""Awaiting calls: each is submitted to the engine, and the event loop is woken up when it has ended."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from gaia.cancellation import current_scope
from gaia.exception_text import exception_text
from gaia.log import get_logger
from gaia.mcp.aio.loop_inbox import LoopInbox, WakeUp, release, running_loop_inbox
from gaia.mcp.aio.threads import in_thread
from gaia.mcp.client.protocol.exchange import Exchange, Send
from gaia.mcp.client.round_trips import RoundTrips
from gaia.mcp.client.supervision.callbacks import Callbacks, Lane
from gaia.mcp.client.supervision.caller import SCOPE_CANCELLED, CallFuture
from gaia.mcp.client.supervision.client_request import CallOptions, OnProgress
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.client.tool_result import ToolResult
from gaia.mcp.errors import CallCancelled, MCPError, NotConnected

__all__ = ["call_tool", "run", "submit_tool"]

logger = get_logger(__name__)

T = TypeVar("T")

Submit = Callable[[Callbacks], CallFuture]
"""Submits a request whose callbacks run where it is told."""


async def call_tool(
    tool_calls: ToolCalls, tool_name: str, arguments: dict[str, Any] | None, options: CallOptions
) -> ToolResult:
    """Like `ToolCalls.call`."""
    if tool_calls.waits_in_caller:
        return await in_thread(tool_calls.call, tool_name, arguments, options)
    try:
        return (await submit_tool(tool_calls, tool_name, arguments, options)).result()
    except NotConnected:
        raise
    except MCPError as error:
        return tool_calls.failed(error, tool_name, arguments)


async def submit_tool(tool_calls: ToolCalls, tool_name: Any, arguments: Any, options: CallOptions) -> CallFuture:
    """Call a tool and wait for the end of the call. Raises `MCPError`."""
    if options.on_progress is None:
        return await _ended(functools.partial(tool_calls.submit, tool_name, arguments, options))
    reports = _Reports(options.on_progress)
    options = msgspec.structs.replace(options, on_progress=reports.hold)
    return await _ended(functools.partial(tool_calls.submit, tool_name, arguments, options), reports)


async def run(trips: RoundTrips, exchange: Exchange[T]) -> T:
    """Like `RoundTrips.run`: its requests are made in turn, and other tasks run meanwhile. Raises `MCPError`."""
    if trips.session.waits_in_caller:
        return await in_thread(trips.run, exchange)
    try:
        step = next(exchange)
        while True:
            assert isinstance(step, Send), "only the handshake has other steps"
            try:
                future = await _ended(functools.partial(trips.submit_step, step))
            except MCPError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(future.answer)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome


async def _ended(submit: Submit, reports: _Reports | None = None) -> CallFuture:
    """Submit a call and wait for its end. Raises `MCPError`.

    If the task is cancelled, or the `CancelScope` that it is in, so is the call, and the server is told. All progress
    has been reported in this task when this returns.
    """
    scope = current_scope()
    if scope is not None and scope.cancelled:
        raise CallCancelled(SCOPE_CANCELLED)
    if reports is None:
        inbox = running_loop_inbox()
        future = submit(inbox)
        end: Awaitable[None] = _end_of(future, inbox)
    else:
        future = submit(reports.lane)
        end = reports.until_end_of(future)
    forget = None if scope is None else scope.on_cancel(future.cancel)
    try:
        await end
        future.result()
    except concurrent.futures.CancelledError:
        raise CallCancelled(SCOPE_CANCELLED) from None
    except BaseException:
        # Does nothing if it is the call that has failed.
        future.cancel()
        raise
    finally:
        if forget is not None:
            forget()
    return future


def _end_of(future: CallFuture, inbox: LoopInbox) -> asyncio.Future[None]:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wake = functools.partial(release, waiter)
    future.on_end(lambda: inbox.post(wake))
    return waiter


class _Reports:
    """Reports of progress, on their way to the task that waits for the call. The lane bounds them."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._arrived = WakeUp(running_loop_inbox())
        self.lane = Lane(lambda _: self._arrived.send())
        self._held: object = None
        """What `on_progress` has returned."""

    def hold(self, progress: float, total: float | None, message: str | None) -> None:
        self._held = self._on_progress(progress, total, message)

    async def until_end_of(self, future: CallFuture) -> None:
        """Report in this task what the lane has, until the call has ended."""
        future.on_end(self._arrived.send)
        while True:
            # What was reported before the end is in the lane then.
            is_over = future.done()
            while (task := self.lane.take()) is not None:
                task()
                held, self._held = self._held, None
                if inspect.isawaitable(held):
                    await _finished(held)
            if is_over:
                return
            await self._arrived.wait()


async def _finished(report: Awaitable[object]) -> None:
    try:
        await report
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the call must not fail of it
        logger.error("progress_callback_failed", error=exception_text(error))
