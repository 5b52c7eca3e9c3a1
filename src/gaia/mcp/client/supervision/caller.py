"""The callers' side of a supervisor: make a call, wait for it, give up in time."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from gaia.cancellation import current_scope
from gaia.engine_thread import described
from gaia.log import get_logger
from gaia.mcp.client.protocol.messages import is_tool_error
from gaia.mcp.client.protocol.notifications import progress_of
from gaia.mcp.client.rpc.call import Call, ProgressSink
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.client_request import ClientRequest, OnProgress
from gaia.mcp.client.supervision.status import CallStatistics
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.errors import CallCancelled, MCPError, ServerCrashed

__all__ = ["SCOPE_CANCELLED", "CallFuture", "Caller", "GoesOn", "Outcome"]

logger = get_logger(__name__)

Outcome = dict[str, Any]

GoesOn = Callable[[MCPError | None, Outcome], bool]
"""Told the error of a call, or None and its result, at once; True says that the request goes on after it."""

SCOPE_CANCELLED = "cancelled together with the work that it was part of"

_MAX_UPDATES = 10_000
"""Reports of progress that wait for the caller's thread; what a server reports beyond that is dropped."""


class Caller:
    """Makes the requests of one client. Thread-safe."""

    def __init__(self, supervisor: Supervisor, clock: Clock, timeout: float) -> None:
        """`timeout` is in seconds, for requests without one of their own."""
        self.supervisor = supervisor
        """Replaced by the session when it connects again; each request reads it once."""
        self.statistics = CallStatistics()
        self._clock = clock
        self._timeout = timeout

    def request(self, request: ClientRequest) -> Outcome:
        """Make a request and wait for its result object. Raises `MCPError`.

        `on_progress` runs in this thread, while it waits, so all progress has been reported when this returns.

        Inside of a `gaia.cancellation.CancelScope` the call is cancelled with the scope.
        """
        scope = current_scope()
        if scope is not None and scope.cancelled:
            raise CallCancelled(SCOPE_CANCELLED)
        clock, supervisor = self._clock, self.supervisor
        started = clock.monotonic()
        report: Callable[[], object] | None = None
        on_progress = request.options.on_progress
        if on_progress is None:
            call = self._call(supervisor, request, started)
        else:
            updates: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
            size, put = updates.qsize, updates.put
            call = self._call(
                supervisor,
                request,
                started,
                on_progress=lambda params: put(params) if size() < _MAX_UPDATES else None,
                on_done=lambda _: put(None),
            )
            report = functools.partial(_report_until_done, updates, call, clock, on_progress)
        call_queue = supervisor.call_queue
        if scope is None:
            call.perform(call_queue, clock, report)
        else:
            forget = scope.on_cancel(lambda: call_queue.cancel(call, CallCancelled(SCOPE_CANCELLED)))
            try:
                call.perform(call_queue, clock, report)
            finally:
                forget()
        error = call.error
        self._record(call, started)
        if error is not None:
            raise error
        return call.result

    def submit(
        self, request: ClientRequest, lane: Lane, future: CallFuture, goes_on: GoesOn = lambda *_: False
    ) -> None:
        """Make a request without waiting, for `future`. Progress and the future's callbacks run on `lane`, in order.

        So does the end of the request's observation, before the future is done. `goes_on` runs on the thread that ends
        the call, and must be quick. Raises Overloaded if there is no thread for the lane.
        """
        lane.require_thread()
        supervisor = self.supervisor
        started = self._clock.monotonic()

        def done(call: Call) -> None:
            try:
                self._record(call, started)
                if goes_on(call.error, call.result):
                    return
                if request.observation is not None:
                    lane.post(functools.partial(request.observation.ended, call.error, call.result))
                lane.post(lambda: future.complete(call.error, call.result))
            except BaseException as error:
                # A mistake of ours must not leave the future undone, here if need be.
                if not future.done():
                    future.complete(ServerCrashed(f"internal error: {described(error)}", delivery=call.delivery), {})
                raise

        on_progress = request.options.on_progress
        call = self._call(
            supervisor,
            request,
            started,
            on_done=done,
            on_progress=None if on_progress is None else lambda params: lane.post(lambda: _report(on_progress, params)),
        )
        future.attach(lambda error: supervisor.call_queue.cancel(call, error))
        supervisor.call_queue.submit(call)
        supervisor.watch(call)

    def _call(
        self,
        supervisor: Supervisor,
        request: ClientRequest,
        now: float,
        *,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call:
        timeout = request.options.timeout
        call = Call(
            supervisor.next_id(),
            request.method,
            request.params,
            now,
            self._timeout if timeout is None else timeout,
            repeatable=request.repeatable,
            negotiated=supervisor.negotiated,
            on_done=on_done,
            on_progress=on_progress,
            observer=request.observation,
            max_timeout=request.max_timeout,
            tool=request.tool,
        )
        if request.observation is not None:
            request.observation.numbered(call.id)
        return call

    def _record(self, call: Call, started: float) -> None:
        failed = call.error is not None or is_tool_error(call.result)
        self.statistics.record(self._clock.monotonic() - started, failed=failed)


def _report_until_done(
    updates: queue.SimpleQueue[Mapping[str, Any] | None], call: Call, clock: Clock, on_progress: OnProgress
) -> None:
    while True:
        deadline = call.deadline
        try:
            params = clock.get(updates, deadline)
        except queue.Empty:
            if call.deadline > deadline:
                continue
            return
        if params is None:
            return
        _report(on_progress, params)


def _report(on_progress: OnProgress, params: Mapping[str, Any]) -> None:
    try:
        on_progress(*progress_of(params))
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the call must not fail of it
        logger.error("progress_callback_failed", error=repr(error))


class CallFuture(Future[Outcome]):
    """The future of a submitted call. `cancel` works until the result is there, and tells the server."""

    def __init__(self) -> None:
        super().__init__()
        self._cancel_call: Callable[[CallCancelled], bool] | None = None
        self._cancellation = CallCancelled("cancelled by its owner")
        self._unwanted = False

    def cancel(self) -> bool:
        """False if the call ended just before. A further round trip of the request is cancelled when it begins."""
        self._unwanted = True
        if self._cancel_call is None or not self._cancel_call(self._cancellation):
            return self.cancelled()
        super().cancel()
        self.set_running_or_notify_cancel()
        return True

    def attach(self, cancel_call: Callable[[CallCancelled], bool]) -> None:
        """Set the function that cancels the current round trip of the request."""
        self._cancel_call = cancel_call
        # `cancel` sets `_unwanted` and then reads `_cancel_call`, so one of the two threads sees the other.
        if self._unwanted:
            self.cancel()

    def complete(self, error: MCPError | None, result: Outcome) -> None:
        """Runs on a callback thread, because it runs the user's done-callbacks."""
        if error is self._cancellation:
            # `cancel` does the rest. A call that was cancelled otherwise has failed.
            return
        self.set_running_or_notify_cancel()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)
