"""Awaiting calls: each is submitted to the engine, and the event loop is woken up when it has ended."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from gaia.mcp.aio.loop_inbox import WakeUp, release, running_loop_inbox
from gaia.mcp.aio.threads import in_thread
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.errors import CallCancelled, MCPError, NotConnected
from gaia.mcp.protocol.exchange import Exchange, Send
from gaia.mcp.requests.caller import SCOPE_CANCELLED, CallFuture
from gaia.mcp.requests.client_request import CallOptions, OnProgress
from gaia.mcp.requests.round_trips import RoundTrips
from gaia.mcp.supervision.callbacks import Callbacks, Lane
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.cancellation import current_scope
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

T = TypeVar("T")

Task = Callable[[], object]

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
        return await _ended(functools.partial(tool_calls.submit, tool_name, arguments, options), _Waiting())
    reporting = _Reporting(options.on_progress)
    options = msgspec.structs.replace(options, on_progress=reporting.hold)
    return await _ended(functools.partial(tool_calls.submit, tool_name, arguments, options), reporting)


async def run(trips: RoundTrips, exchange: Exchange[T]) -> T:
    """Like `RoundTrips.run`: its requests are made in turn, and other tasks run meanwhile. Raises `MCPError`."""
    if trips.session.waits_in_caller:
        return await in_thread(trips.run, exchange)
    try:
        step = next(exchange)
        while True:
            assert isinstance(step, Send), "only the handshake has other steps"
            try:
                future = await _ended(functools.partial(trips.submit_step, step), _Waiting())
            except MCPError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(future.answer)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome


async def _ended(submit: Submit, waiting: _Waiting | _Reporting) -> CallFuture:
    """Submit a call and wait for its end. Raises `MCPError`.

    If the task is cancelled, or the `CancelScope` that it is in, so is the call, and the server is told.
    """
    scope = current_scope()
    if scope is not None and scope.cancelled:
        raise CallCancelled(SCOPE_CANCELLED)
    future = submit(waiting.callbacks)
    forget = None if scope is None else scope.on_cancel(future.cancel)
    try:
        await waiting.until_end_of(future)
        future.result()
    except concurrent.futures.CancelledError:
        raise CallCancelled(SCOPE_CANCELLED, delivery=future.delivery_of_cancelled) from None
    except BaseException:
        # Does nothing if it is the call that has failed.
        future.cancel()
        raise
    finally:
        if forget is not None:
            forget()
        waiting.leave()
    return future


class _Waiting:
    """A task that waits for a call, and then runs what belongs to the end of the call, such as that of its span."""

    def __init__(self) -> None:
        self._inbox = running_loop_inbox()
        self._waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: deque[Task] = deque()
        self._has_left = False
        """The task sets it and then runs the tasks; other threads add a task and then look at it. One of the two sees
        the other."""

    @property
    def callbacks(self) -> Callbacks:
        return self

    def post(self, task: Task, /, *, size: int = 0) -> None:  # noqa: ARG002 - the signature of a lane
        # Wakes up nothing: the end of the call does, and comes next.
        self._tasks.append(task)
        if self._has_left:
            self._inbox.post(self._run)

    def until_end_of(self, future: CallFuture) -> asyncio.Future[None]:
        future.on_end(self._end)
        return self._waiter

    def leave(self) -> None:
        """The task goes on: what comes now runs in between, on the loop."""
        self._has_left = True
        self._run()

    def _end(self) -> None:
        self._inbox.post(self._go_on)

    def _go_on(self) -> None:
        if self._inbox.is_closed:
            # The task never will.
            self.leave()
        else:
            release(self._waiter)

    def _run(self) -> None:
        while self._tasks:
            try:
                task = self._tasks.popleft()
            except IndexError:
                # The loop is closed: the thread for such loops does this, and the one that has collected the task.
                return
            task()


class _Reporting:
    """A task that waits for a call, and reports its progress meanwhile. The lane bounds the reports that wait."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._inbox = running_loop_inbox()
        self._arrived = WakeUp(self._inbox)
        self.callbacks = Lane(lambda _: self._schedule())
        self._held: object = None
        """What `on_progress` has returned."""
        self._has_left = False
        """Owned by the loop's thread, as all that follows the lane's schedule."""

    def hold(self, progress: float, total: float | None, message: str | None) -> None:
        if not self._has_left:
            self._held = self._on_progress(progress, total, message)

    async def until_end_of(self, future: CallFuture) -> None:
        """Report in this task what the lane has, until the call has ended."""
        future.on_end(self._schedule)
        while True:
            # What was reported before the end is in the lane then.
            is_over = future.done()
            while (task := self.callbacks.take()) is not None:
                task()
                held, self._held = self._held, None
                if inspect.isawaitable(held):
                    await _finished(held)
            if is_over:
                return
            await self._arrived.wait()

    def leave(self) -> None:
        """The task goes on: what comes now runs in between, on the loop, and is not reported any more."""
        self._has_left = True
        self.callbacks.run()

    def _schedule(self) -> None:
        self._inbox.post(self._next)

    def _next(self) -> None:
        if self._has_left or self._inbox.is_closed:
            self.leave()
        else:
            self._arrived.arrive()


async def _finished(report: Awaitable[object]) -> None:
    try:
        await report
    except (Exception, asyncio.CancelledError) as error:
        # User code may raise anything, and the call must not fail of it.
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            # It is this task that is cancelled, and not something that the report has waited for.
            raise
        logger.error("progress_callback_failed", error=exception_text(error))
