"""`SubmittedRequest` drives a request without a waiting thread; `CallFuture` is the result of `submit_tool`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED
from typing import TYPE_CHECKING, Any

from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, ServerCrashed
from gaia.mcp.protocol.messages import value_size
from gaia.mcp.protocol.notifications import progress_of
from gaia.mcp.requests.exchange import (
    ASK,
    CHECK,
    DONE,
    SEND,
    OnProgress,
    Outcome,
    RequestContext,
    RequestExchange,
    Step,
)
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.callbacks import Callbacks
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.locks import SteadyCondition
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.threads import PoolExhausted

if TYPE_CHECKING:
    from gaia.runtime.loop_work import LoopWork

logger = get_logger(__name__)


class SubmittedRequest:
    """Takes the next step of a request when the step before has ended, and never waits.

    A round ends on the thread of a reader, of the deadlines, or of the caller that cancels it. Steps that may take long
    run on the client's threads for steps. A subclass implements the end: see `ended`.
    """

    __slots__ = ("_cancellation", "exchange", "loop", "requests", "under_way")

    def __init__(self, requests: RequestContext, exchange: RequestExchange) -> None:
        self.requests = requests
        self.exchange = exchange
        self.loop: LoopWork | None = None
        """The event loop whose task waits for the end; None if a thread waits or may wait."""
        self.under_way: Call | InputRequests | None = None
        self._cancellation: CallCancelled | None = None
        """`cancel_request` sets this and then reads `under_way`; `_begin` sets `under_way` and then reads this. So at
        least one of the two threads sees the other's value."""

    def start(self) -> None:
        """Begin the first round. Raises ValueError for params that are not JSON."""
        try:
            step = self.exchange.begin(self.requests)
            if step is SEND:
                self._send()
            else:
                self._do(step)
        except BaseException as error:
            self.abandon(error)
            raise

    def abandon(self, error: BaseException) -> None:
        """Cancel and end the request, because the caller gets `error` instead of it: invalid params, or Ctrl-C."""
        self.cancel_request(CallCancelled("the caller was interrupted"))
        if not self.exchange.is_over:
            self.exchange.end(error)

    def cancel_request(self, error: CallCancelled) -> bool:
        """End the request with `error`, and notify the server. For any thread.

        False if the round ended just before. If the request has a next round, that is cancelled when it begins.
        """
        self._cancellation = error
        under_way = self.under_way
        return under_way is not None and under_way.cancel(error)

    # For subclasses.

    def ended(self) -> None:
        """Notify the owner, who calls `RequestExchange.end`. For any thread; must be quick; may be called again."""
        raise NotImplementedError

    @property
    def wants_progress(self) -> bool:
        return self.exchange.options.on_progress is not None

    def progressed(self, params: Mapping[str, Any]) -> None: ...

    def answered(self, call: Call) -> None:
        """A round has ended: call `next_step` now or later. For any thread. Called again after an exception."""
        self.next_step(call)

    def ask(self) -> None:
        """The server requires ``exchange.required``: have it answered, then call `input_arrived` or `fail`."""
        self._later(self._ask_application)

    def next_step(self, call: Call) -> None:
        """Take the step that follows a round. Does nothing if that step was taken before."""
        try:
            # Breaks the reference cycle between the call and this object.
            call.on_done = None
            if self.under_way is not call:
                return
            self.under_way = None
            self.requests.session.record(call)
            step = self.exchange.answered(self.requests, call)
            if step is DONE:
                self.ended()
            else:
                self._do(step)
        except BaseException as error:
            # If our own code fails here, the request must still end.
            if not self.exchange.is_over:
                reason = f"internal error: {exception_text(error)}"
                self.exchange.fail(ServerCrashed(reason, delivery=call.delivery))
            self.ended()
            raise

    def input_arrived(self, answers: Mapping[str, Any]) -> None:
        self._do(self.exchange.input_arrived(answers))

    def fail(self, error: MCPError) -> None:
        self._do(self.exchange.fail(error))

    def _do(self, step: Step) -> None:
        if step is SEND:
            self._send()
        elif step is ASK:
            self.ask()
        elif step is CHECK:
            check = self.exchange.check
            self._later(self._check, None if check is None else check.submit)
        else:
            self.ended()

    def _send(self) -> None:
        requests = self.requests
        call = requests.session.new_call(self.exchange, self.answered, self.progressed if self.wants_progress else None)
        call.loop = self.loop
        self._begin(call)
        call.start(requests.deadlines)

    def _begin(self, under_way: Call | InputRequests) -> None:
        self.under_way = under_way
        if self._cancellation is not None:
            under_way.cancel(self._cancellation)

    def _check(self) -> None:
        self._do(self.exchange.checked())

    def _ask_application(self) -> None:
        requests = self.requests
        exchange = self.exchange
        inputs = InputRequests(
            requests.server_requests, exchange.questions, self._application_answered, exchange.origin
        )
        self._begin(inputs)
        inputs.start()
        requests.deadlines.watch(inputs)

    def _application_answered(self, inputs: InputRequests) -> None:
        self._later(lambda: self._go_on(inputs))

    def _go_on(self, inputs: InputRequests) -> None:
        """Take the step that follows the answers. Does nothing a second time: an interruption repeats the report."""
        if self.under_way is not inputs:
            return
        self.under_way = None
        if inputs.error is None:
            self.input_arrived(inputs.answers)
        else:
            self.fail(inputs.error)

    def _later(self, task: Callable[[], None], submit: Callable[[Callable[[], None]], object] | None = None) -> None:
        """Run `task` soon: with `submit`, or on a thread for steps."""

        def guarded() -> None:
            try:
                task()
            except MCPError as error:
                self.fail(error)
            except BaseException as error:  # noqa: BLE001 - if our own code fails here, the request must still end
                logger.error("call_failed", method=self.exchange.method, error=exception_text(error))
                self.fail(InvalidResponse(f"internal error: {exception_text(error)}"))

        try:
            (submit or self.requests.steps.submit)(guarded)
        except PoolExhausted:
            # No thread can be started, so the current thread runs the step. The step is delayed, but the request is not
            # lost.
            guarded()


class FutureRequest(SubmittedRequest):
    """A request that completes a `CallFuture`. Its progress and the end of its observation run on the future's lane."""

    __slots__ = ("future",)

    def __init__(self, requests: RequestContext, exchange: RequestExchange, lane: Callbacks) -> None:
        super().__init__(requests, exchange)
        self.future = CallFuture(lane, self.cancel_request)

    def ended(self) -> None:
        exchange, future = self.exchange, self.future
        try:
            if exchange.observation is not None:
                exchange.observation.stop()
                # On the lane before the callbacks of the future.
                future.lane.post(exchange.end)
        finally:
            future._complete(exchange.error, exchange.result or {})

    def progressed(self, params: Mapping[str, Any]) -> None:
        on_progress = self.exchange.options.on_progress
        assert on_progress is not None, "progress is only reported if it is wanted"
        self.future.lane.post(functools.partial(report, on_progress, params), size=value_size(params))


def report(on_progress: OnProgress, params: Mapping[str, Any]) -> None:
    try:
        on_progress(*progress_of(params))
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the call must not fail because of it
        logger.error("progress_callback_failed", error=exception_text(error))


class CallFuture(Future[ToolResult]):
    """The future of a submitted tool call. `cancel` works until the result has arrived, and notifies the server.

    A thread of a connection or of the supervisor completes the future. The future's callbacks run on a lane instead.
    """

    def __init__(self, lane: Callbacks, cancel_request: Callable[[CallCancelled], bool]) -> None:
        super().__init__()
        self._condition = SteadyCondition()
        self.lane = lane
        self._cancel_request: Callable[[CallCancelled], bool] | None = cancel_request
        self._cancellation = CallCancelled("cancelled by its owner")

    def add_done_callback(self, fn: Callable[[Future[ToolResult]], object]) -> None:
        """Have a callback thread call `fn` with this future when it is done; if it is done now, call `fn` here."""
        adder, adding = threading.get_ident(), True

        def call(future: Future[ToolResult]) -> None:
            if adding and threading.get_ident() == adder:
                fn(future)
            else:
                self.lane.post(functools.partial(fn, future))

        super().add_done_callback(call)
        adding = False

    def cancel(self) -> bool:
        """False if the call ended just before. If the request has a next round, that is cancelled when it begins."""
        cancel_request = self._cancel_request
        if cancel_request is not None and cancel_request(self._cancellation):
            self._set_cancelled()
        return self.cancelled()

    def _set_cancelled(self) -> None:
        """For any thread. Two threads may call this: both may find that the request was cancelled."""
        super().cancel()
        with self._condition:
            if self._state == CANCELLED:
                self.set_running_or_notify_cancel()

    def _complete(self, error: MCPError | None, result: Outcome) -> None:
        """Release the threads that wait for the future. For any thread; runs no user code; may be called again."""
        if error is self._cancellation:
            # A call that was cancelled in another way than by `cancel` counts as failed.
            self._set_cancelled()
        elif not self.done():
            if not self.running():
                self.set_running_or_notify_cancel()
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(ToolResult.from_server(result))
        # The function keeps the call and its arguments in memory.
        self._cancel_request = None
