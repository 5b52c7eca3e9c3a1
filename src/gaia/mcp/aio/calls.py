"""`request` drives a request for a task: it submits the request and awaits its end, which any thread may bring."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from gaia.mcp.aio.threads import in_thread
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.errors import CallCancelled, MCPError, NotConnected
from gaia.mcp.protocol.exchange import Exchange, Send, advance
from gaia.mcp.protocol.messages import value_size
from gaia.mcp.requests.client_requests import SCOPE_CANCELLED, ClientRequests
from gaia.mcp.requests.exchange import CallOptions, Outcome, RequestExchange
from gaia.mcp.requests.submitted_request import SubmittedRequest, report
from gaia.mcp.supervision.callbacks import Lane
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.cancellation import current_scope
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.loop_work import WakeUp, running_loop_work

logger = get_logger(__name__)

T = TypeVar("T")


async def call_tool(
    tool_calls: ToolCalls, tool_name: str, arguments: dict[str, Any] | None, options: CallOptions
) -> ToolResult:
    if tool_calls.requests.session.waits_in_caller:
        return await in_thread(tool_calls.call, tool_name, arguments, options)
    if tool_calls.before_call is not None:
        changes = tool_calls.before_call(tool_calls.described(tool_name, arguments, options))
        options = options.changed(await changes if inspect.isawaitable(changes) else changes)
    try:
        exchange = tool_calls.new_request(tool_name, arguments, options)
        return ToolResult.from_server(await request(tool_calls.requests, exchange))
    except NotConnected:
        raise
    except MCPError as error:
        return tool_calls.failed(error, tool_name, arguments)


async def run(client: ClientRequests, exchange: Exchange[T]) -> T:
    """Like `ClientRequests.run`: make the requests of an exchange one after the other. Raises `MCPError`."""
    if client.session.waits_in_caller:
        return await in_thread(client.run, exchange)
    result: Outcome | MCPError | None = None
    try:
        while True:
            step = advance(exchange, result)
            assert isinstance(step, Send), "only the handshake has other steps"
            try:
                result = await request(client, client.new_request(step))
            except MCPError as error:
                result = error
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome


async def request(client: ClientRequests, exchange: RequestExchange) -> Outcome:
    """Make a request, wait for its result object and end its observation. Raises `MCPError`.

    `on_progress` may be a coroutine function. It runs in this task: all progress has been reported when this returns.
    If the task or its `CancelScope` is cancelled, the request is cancelled too, and the server is notified.
    """
    awaited = (_AwaitedRequest if exchange.options.on_progress is None else _ReportingRequest)(client, exchange)
    if exchange.origin is not None:
        exchange.origin.loop = awaited.loop
    scope, forget = current_scope(), None
    if scope is not None and scope.cancelled:
        awaited.fail(CallCancelled(SCOPE_CANCELLED))
    else:
        awaited.start()
    try:
        if scope is not None and not exchange.is_over:
            forget = scope.on_cancel(lambda: awaited.cancel_request(CallCancelled(SCOPE_CANCELLED)))
        await awaited.until_end()
    except BaseException:
        # Does nothing if the request is over.
        awaited.cancel_request(CallCancelled("cancelled by its owner"))
        raise
    finally:
        if forget is not None:
            forget()
        if exchange.is_over and exchange.observation is not None:
            exchange.end()
    if exchange.error is not None:
        raise exchange.error
    return exchange.result or {}


class _AwaitedRequest(SubmittedRequest):
    """A request that a task waits for. The task ends the observation; if the task is gone, `_release` does."""

    __slots__ = ("_waiter", "_work")

    def __init__(self, requests: ClientRequests, exchange: RequestExchange) -> None:
        super().__init__(requests, exchange)
        self.loop = self._work = running_loop_work()
        self._waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def until_end(self) -> Awaitable[None]:
        return self._waiter

    def ended(self) -> None:
        observation = self.exchange.observation
        if observation is not None:
            observation.stop()
        self._work.run_soon(self._release)

    def _release(self) -> None:
        if self._waiter.done() or self._work.is_closed:
            # The task does not wait any more.
            self.exchange.end()
        else:
            self._waiter.set_result(None)


class _ReportingRequest(_AwaitedRequest):
    """A request whose progress is reported in the task while it waits. A lane limits the waiting reports."""

    __slots__ = ("_arrived", "_held", "_lane")

    def __init__(self, requests: ClientRequests, exchange: RequestExchange) -> None:
        super().__init__(requests, exchange)
        self._arrived = WakeUp(self._work)
        self._lane = Lane(lambda _: self._arrived.send(), requests.observer.server)
        self._held: object = None

    def progressed(self, params: Mapping[str, Any]) -> None:
        self._lane.post(functools.partial(report, self._hold, params), size=value_size(params))

    def _hold(self, progress: float, total: float | None, message: str | None) -> None:
        on_progress = self.exchange.options.on_progress
        assert on_progress is not None, "that is why this class was chosen"
        self._held = on_progress(progress, total, message)

    def _release(self) -> None:
        super()._release()
        if not self._work.is_closed:
            self._arrived.arrive()

    async def until_end(self) -> None:
        """Report the progress in the lane, in this task, until the request has ended."""
        try:
            await self._report()
        except BaseException:
            # The task waits no more: `_release` ends the observation.
            self._waiter.cancel()
            raise

    async def _report(self) -> None:
        while True:
            # Read first: reports from before the end are then already in the lane.
            is_over = self._waiter.done()
            while (task := self._lane.take()) is not None:
                task()
                held, self._held = self._held, None
                if inspect.isawaitable(held):
                    await _finished(held)
            if is_over:
                return
            await self._arrived.wait()


async def _finished(held: Awaitable[object]) -> None:
    try:
        await held
    except (Exception, asyncio.CancelledError) as error:
        # User code may raise any exception, and the call must not fail because of it.
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            # The cancellation is for this task, not for an object that the report awaits.
            raise
        logger.error("progress_callback_failed", error=exception_text(error))
