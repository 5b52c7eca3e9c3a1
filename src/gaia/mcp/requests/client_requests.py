"""`ClientRequests` makes the requests of one client: the caller's thread waits for the result, or gets a future."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable
from typing import Any, TypeVar

from gaia.mcp.errors import CallCancelled, JsonRpcError
from gaia.mcp.protocol.exchange import Exchange, Send, drive, paginate
from gaia.mcp.protocol.messages import INVALID_PARAMS, value_size
from gaia.mcp.requests.exchange import (
    ASK,
    DONE,
    SEND,
    CallOptions,
    OnProgress,
    Outcome,
    RequestContext,
    RequestExchange,
    Step,
)
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.requests.submitted_request import CallFuture, FutureRequest, report
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.callbacks import Callbacks, Lane
from gaia.runtime.cancellation import CancelScope, current_scope
from gaia.runtime.clock import Clock
from gaia.runtime.locks import TimedQueue

T = TypeVar("T")

SCOPE_CANCELLED = "cancelled together with the work that it was part of"

_MAX_PROGRESS_BYTES = 8 * 1024 * 1024
"""Bytes of the progress reports that wait for the caller's thread. If there are more, the oldest are dropped."""


class ClientRequests(RequestContext):
    """The requests of one client over its session. Thread-safe."""

    def request(self, exchange: RequestExchange) -> Outcome:
        """Make a request, wait for its result object and end its observation. Raises `MCPError`.

        `on_progress` runs in this thread while it waits, so all progress has been reported when this method returns.
        The current `CancelScope` cancels the request.
        """
        failure: BaseException | None = None
        try:
            step = exchange.begin(self)
            while step is not DONE:
                if step is SEND:
                    scope = current_scope()
                    if scope is not None and scope.cancelled:
                        step = exchange.fail(CallCancelled(SCOPE_CANCELLED))
                        continue
                    # No closures here: every call takes this path and would pay for them.
                    reporting = None
                    if exchange.options.on_progress is None:
                        call = self.session.new_call(exchange)
                    else:
                        call, reporting = self._call_with_progress(exchange, exchange.options.on_progress)
                    forget = None if scope is None else _cancel_with(scope, call)
                    try:
                        call.perform(self.clock, reporting)
                    finally:
                        if forget is not None:
                            forget()
                    self.session.record(call)
                    step = exchange.answered(self, call)
                elif step is ASK:
                    step = self._ask(exchange)
                else:
                    step = exchange.checked()
            if exchange.error is not None:
                raise exchange.error
        except BaseException as error:
            failure = error
            raise
        finally:
            if exchange.observation is not None:
                exchange.end(failure)
        return exchange.result or {}

    def _call_with_progress(
        self, exchange: RequestExchange, on_progress: OnProgress
    ) -> tuple[Call, Callable[[], object]]:
        arrived: TimedQueue[None] = TimedQueue()
        lane = Lane(lambda _: arrived.put(None), self.observer.server, max_bytes=_MAX_PROGRESS_BYTES)
        call = self.session.new_call(
            exchange,
            lambda _: arrived.put(None),
            lambda params: lane.post(functools.partial(report, on_progress, params), size=value_size(params)),
        )
        return call, functools.partial(_report_until_done, call, lane, arrived, self.clock)

    def _ask(self, exchange: RequestExchange) -> Step:
        done: TimedQueue[None] = TimedQueue()
        inputs = InputRequests(self.server_requests, exchange.questions, lambda _: done.put(None), exchange.origin)
        scope = current_scope()
        forget = None if scope is None else _cancel_with(scope, inputs)
        try:
            inputs.start()
            try:
                self.clock.get(done, inputs.deadline)
            except queue.Empty:
                inputs.expire()
                done.get()
        except BaseException:
            inputs.cancel(CallCancelled("the caller was interrupted"))
            raise
        finally:
            if forget is not None:
                forget()
        return exchange.input_arrived(inputs.answers) if inputs.error is None else exchange.fail(inputs.error)

    def submit(self, exchange: RequestExchange, lane: Callbacks) -> CallFuture:
        """Make a request without waiting; see `MCPClient.submit_tool`. Raises ValueError and NotConnected.

        Progress, the end of the observation and then the future's callbacks run on `lane`.
        """
        submitted = FutureRequest(self, exchange, lane)
        try:
            self.session.require_connected()
            submitted.start()
            return submitted.future
        except BaseException as error:
            submitted.abandon(error)
            raise

    def new_request(self, step: Send) -> RequestExchange:
        """The request of a step, which is never a tool call."""
        observation = self.observer.begin(step.method, step.params, target=step.target)
        params = observation.prepare(step.params)
        origin = self.origin_of(step.method, step.target, None, None, observation)
        return RequestExchange(step.method, params, CallOptions(step.timeout), observation=observation, origin=origin)

    def run(self, exchange: Exchange[T]) -> T:
        """Make the requests of an exchange one after the other, in this thread. Raises `MCPError`."""
        return drive(exchange, lambda step: self.request(self.new_request(step)))

    def list_all(self, method: str, key: str) -> Exchange[list[Any]]:
        """The items of all pages of a listing; `key` is the member of a page that has the items."""
        try:
            return (yield from paginate(method, key))
        except JsonRpcError as error:
            # A cursor in a cached page may no longer be valid ("Caching").
            if error.code != INVALID_PARAMS or not self.cache.forget(method):
                raise
            return (yield from paginate(method, key))


def _cancel_with(scope: CancelScope, under_way: Call | InputRequests) -> Callable[[], None]:
    """Cancel `under_way` with the scope. Returns a function that removes this again."""
    return scope.on_cancel(lambda: under_way.cancel(CallCancelled(SCOPE_CANCELLED)))


def _report_until_done(call: Call, lane: Lane, arrived: TimedQueue[None], clock: Clock) -> None:
    while True:
        # Read first: reports from before the end are then already in the lane.
        is_over, deadline = call.ended, call.deadline
        while (task := lane.take()) is not None:
            task()
        if is_over:
            return
        try:
            clock.get(arrived, deadline)
        except queue.Empty:
            if call.deadline <= deadline:
                return
