"""`SubmittedRequest` drives a request for which no thread waits; `CallFuture` is what `submit_tool` returns."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED
from typing import TYPE_CHECKING, Any, Protocol

from gaia.mcp.errors import CallCancelled, Delivery, InvalidResponse, MCPError, ServerCrashed
from gaia.mcp.protocol.messages import value_size
from gaia.mcp.protocol.notifications import progress_of
from gaia.mcp.requests.caller import RequestSession
from gaia.mcp.requests.exchange import ASK, CHECK, DONE, SEND, OnProgress, Outcome, Peer, RequestExchange, Step
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.callbacks import Callbacks
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import Deadlines
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.threads import DaemonPool, PoolExhausted

if TYPE_CHECKING:
    from gaia.runtime.loop_work import LoopWork

logger = get_logger(__name__)


class RequestClient(Peer, Protocol):
    """What drivers use of a client; see `ClientRequests`."""

    session: RequestSession
    server_requests: ServerRequests
    clock: Clock
    deadlines: Deadlines
    steps: DaemonPool


class SubmittedRequest:
    """Takes each step of a request when the one before is over, and never waits.

    A round ends on the thread of a reader, of deadlines, or of whoever cancels it. Steps that may take long run on the
    client's threads for steps. A subclass decides what happens at the end: see `ended`.
    """

    __slots__ = ("_cancellation", "exchange", "loop", "requests", "under_way")

    def __init__(self, requests: RequestClient, exchange: RequestExchange) -> None:
        self.requests = requests
        self.exchange = exchange
        self.loop: LoopWork | None = None
        """The event loop whose task waits for the end; None: a thread does, or may."""
        self.under_way: Call | InputRequests | None = None
        """The round, or what it waits for before the next one."""
        self._cancellation: CallCancelled | None = None
        """`cancel_request` sets it and then reads `under_way`. `_begin` sets that and then reads this. One of the two
        threads sees the other."""

    def start(self) -> None:
        """Begin the first round. Raises ValueError for params that are no JSON."""
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
        """Nothing waits for the request, because `error` is raised: its params are no JSON, say, or Ctrl-C came."""
        self.cancel_request(CallCancelled("the caller was interrupted"))
        if not self.exchange.is_over:
            self.exchange.end(error)

    def cancel_request(self, error: CallCancelled) -> bool:
        """End the request with `error`, and tell the server. For any thread.

        False if the round has just ended. The request is cancelled then when its next round begins, if there is one.
        """
        self._cancellation = error
        under_way = self.under_way
        return under_way is not None and under_way.cancel(error)

    def allow(self, seconds: float | None = None) -> None:
        """Give the round so much time from now on, by default its whole timeout, instead of what it has left."""
        call = self.under_way
        if isinstance(call, Call):
            call.deadline = self.requests.clock.monotonic() + (call.timeout if seconds is None else seconds)
            self.requests.deadlines.watch(call)

    # For subclasses.

    def ended(self) -> None:
        """The exchange is over: tell the owner, and have `RequestExchange.end` called. For any thread, and quick.

        Called again after an exception of a signal handler.
        """
        raise NotImplementedError

    @property
    def wants_progress(self) -> bool:
        """Whether `progressed` leads anywhere."""
        return self.exchange.options.on_progress is not None

    def progressed(self, params: Mapping[str, Any]) -> None:
        """The server reports progress. For any thread, and quick."""

    def answered(self, call: Call) -> None:
        """A round has ended, on whatever thread: leads to `next_step`. Called again after an exception."""
        self.next_step(call)

    def ask(self) -> None:
        """The server requires ``exchange.required``: leads to `input_arrived`, or to `fail`."""
        self._later(self._ask_application)

    # The steps.

    def next_step(self, call: Call) -> None:
        """Take the step that comes after a round; nothing if that was done."""
        try:
            # Neither of the two keeps the other.
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
        """Begin the next round."""
        self._do(self.exchange.input_arrived(answers))

    def fail(self, error: MCPError) -> None:
        """End the request between two rounds."""
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
        required, requests = self.exchange.required, self.requests
        assert required is not None, "that is why it is asked"
        inputs = InputRequests(requests.server_requests, required.requests or {}, self._application_answered)
        self._begin(inputs)
        inputs.start()
        requests.deadlines.watch(inputs)

    def _application_answered(self, inputs: InputRequests) -> None:
        error = inputs.error
        self._later(lambda: self.input_arrived(inputs.answers) if error is None else self.fail(error))

    def _later(self, task: Callable[[], None], submit: Callable[[Callable[[], None]], object] | None = None) -> None:
        """Run a step soon: where `submit` runs it, or on a thread for steps."""

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
            # No thread can be started. This one, which ended the step before, is late then; the request is not lost.
            guarded()


class FutureRequest(SubmittedRequest):
    """A request whose outcome a `CallFuture` gets. The end of its observation, and progress, run on its lane."""

    __slots__ = ("future",)

    def __init__(self, requests: RequestClient, exchange: RequestExchange, lane: Callbacks) -> None:
        super().__init__(requests, exchange)
        self.future = CallFuture(lane, self.cancel_request)

    def ended(self) -> None:
        exchange, future = self.exchange, self.future
        try:
            if exchange.observation is not None:
                exchange.observation.stop()
                # Before the future's callbacks.
                future.lane.post(exchange.end)
        finally:
            future._complete(exchange.error, exchange.result or {})

    def progressed(self, params: Mapping[str, Any]) -> None:
        on_progress = self.exchange.options.on_progress
        assert on_progress is not None, "progress is only reported if it is wanted"
        self.future.lane.post(functools.partial(report, on_progress, params), size=value_size(params))


def report(on_progress: OnProgress, params: Mapping[str, Any]) -> None:
    """Tell the application of progress."""
    try:
        on_progress(*progress_of(params))
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the call must not fail of it
        logger.error("progress_callback_failed", error=exception_text(error))


class CallFuture(Future[ToolResult]):
    """The future of a submitted tool call. `cancel` works until the result is there, and tells the server.

    A thread of a connection or a supervisor completes it, and runs none of its callbacks: they run on a lane.
    """

    def __init__(self, lane: Callbacks, cancel_request: Callable[[CallCancelled], bool]) -> None:
        super().__init__()
        self.lane = lane
        self._cancel_request: Callable[[CallCancelled], bool] | None = cancel_request
        self._cancellation = CallCancelled("cancelled by its owner")

    def add_done_callback(self, fn: Callable[[Future[ToolResult]], object]) -> None:
        """Have a callback thread call `fn` with this future when it is done; this thread does, if that is so now."""
        adder, adding = threading.get_ident(), True

        def call(future: Future[ToolResult]) -> None:
            if adding and threading.get_ident() == adder:
                fn(future)
            else:
                self.lane.post(functools.partial(fn, future))

        super().add_done_callback(call)
        adding = False

    def cancel(self) -> bool:
        """False if the call ended just before. A further round trip of the request is cancelled when it begins."""
        cancel_request = self._cancel_request
        if cancel_request is not None and cancel_request(self._cancellation):
            self._set_cancelled()
        return self.cancelled()

    def _set_cancelled(self) -> None:
        """For any thread, and more than once: two may find that the request was cancelled."""
        super().cancel()
        with self._condition:
            if self._state == CANCELLED:
                self.set_running_or_notify_cancel()

    @property
    def delivery_of_cancelled(self) -> Delivery:
        """Whether the server may have acted on a request that was cancelled."""
        return self._cancellation.delivery

    def _complete(self, error: MCPError | None, result: Outcome) -> None:
        """The request has ended. For any thread: it releases those that wait, and runs no user code.

        May be called again after an exception.
        """
        if error is self._cancellation:
            # A call that was cancelled otherwise has failed.
            self._set_cancelled()
        elif not self.done():
            if not self.running():
                self.set_running_or_notify_cancel()
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(ToolResult.from_server(result))
        # It keeps the call, with its arguments.
        self._cancel_request = None
