"""The callers' side of a supervisor: make a call, wait for it, give up in time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from gaia.cancellation import current_scope
from gaia.log import get_logger
from gaia.mcp.client.rpc.call import Call, ProgressSink
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.client_request import ClientRequest, OnProgress
from gaia.mcp.client.supervision.status import CallStatistics
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.errors import CallCancelled, MCPError

__all__ = ["SCOPE_CANCELLED", "CallFuture", "GoesOn", "OnDone", "Outcome", "request", "submit"]

logger = get_logger(__name__)

Outcome = dict[str, Any]

OnDone = Callable[[MCPError | None, Outcome], None]
"""Told the error of a call, or None and its result."""

GoesOn = Callable[[MCPError | None, Outcome], bool]
"""Told the same, at once; True says that the request goes on after it, and that its future is seen to."""

SCOPE_CANCELLED = "cancelled together with the work that it was part of"

_MAX_UPDATES = 10_000
"""A server that reports progress faster than it is taken note of loses reports, not our memory."""


def request(
    supervisor: Supervisor, clock: Clock, statistics: CallStatistics, wanted: ClientRequest, timeout: float
) -> Outcome:
    """Make a call and wait for its result object, at most `timeout` seconds. Raises `MCPError`.

    `on_progress` runs in this thread, while it waits, so all progress has been reported when this returns.

    Inside of a `gaia.cancellation.CancelScope` the call is cancelled with the scope.
    """
    scope = current_scope()
    if scope is not None and scope.cancelled:
        raise CallCancelled(SCOPE_CANCELLED)
    started = clock.monotonic()
    updates: queue.SimpleQueue[Mapping[str, Any] | None] | None = None
    on_progress = wanted.on_progress
    if on_progress is None:
        call = _call(supervisor, wanted, started, timeout)
    else:
        updates = queue.SimpleQueue()
        size, put = updates.qsize, updates.put
        call = _call(
            supervisor,
            wanted,
            started,
            timeout,
            on_progress=lambda params: put(params) if size() < _MAX_UPDATES else None,
            on_done=lambda _: put(None),
        )
    forget: Callable[[], None] | None = None
    try:
        supervisor.call_queue.submit(call)
        if scope is not None:
            forget = scope.on_cancel(lambda: supervisor.call_queue.cancel(call, CallCancelled(SCOPE_CANCELLED)))
        if updates is not None and on_progress is not None:
            _report_until_done(updates, call, clock, on_progress)
        if not call.wait(clock) and not supervisor.call_queue.expire(call):
            # It ended in this very moment; whoever ended it is about to release it.
            call.wait_for_outcome()
    except BaseException:
        # Ctrl-C in the waiting thread, for example: the server must not go on for nobody.
        supervisor.call_queue.cancel(call, CallCancelled("the caller was interrupted"))
        raise
    finally:
        if forget is not None:
            forget()
    error = call.error
    statistics.record(clock.monotonic() - started, failed=error is not None or call.result.get("isError") is True)
    if error is not None:
        raise error
    return call.result


def _call(
    supervisor: Supervisor,
    wanted: ClientRequest,
    now: float,
    timeout: float,
    *,
    on_done: Callable[[Call], None] | None = None,
    on_progress: ProgressSink | None = None,
) -> Call:
    call = Call(
        supervisor.next_id(),
        wanted.method,
        wanted.params,
        now,
        timeout,
        repeatable=wanted.repeatable,
        negotiated=supervisor.negotiated,
        on_done=on_done,
        on_progress=on_progress,
        observer=wanted.observer,
        longest=wanted.longest,
    )
    if wanted.observer is not None:
        wanted.observer.numbered(call.id)
    return call


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
        on_progress(params.get("progress", 0), params.get("total"), params.get("message"))
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the call is not to blame for it
        logger.error("progress_callback_failed", error=repr(error))


class CallFuture(Future[Outcome]):
    """The future of a submitted call. `cancel` works until the result is there, and tells the server."""

    def __init__(self) -> None:
        super().__init__()
        self._cancel_call: Callable[[CallCancelled], bool] | None = None
        self._cancellation = CallCancelled("cancelled by its owner")
        self._unwanted = False

    def cancel(self) -> bool:
        """False if it was not in time. If the request goes on after all, it is cancelled then."""
        self._unwanted = True
        if self._cancel_call is None or not self._cancel_call(self._cancellation):
            return self.cancelled()
        super().cancel()
        self.set_running_or_notify_cancel()
        return True

    def attach(self, cancel_call: Callable[[CallCancelled], bool]) -> None:
        """What there is to cancel from now on."""
        self._cancel_call = cancel_call
        # `cancel` sets the mark and then looks what there is. One of us sees the other.
        if self._unwanted:
            self.cancel()

    def complete(self, error: MCPError | None, result: Outcome) -> None:
        """Runs on a callback thread, because it runs the user's done-callbacks."""
        if error is self._cancellation:
            # `cancel` sees to the rest. Cancelled by anybody else, it is a call that failed.
            return
        self.set_running_or_notify_cancel()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)


def submit(
    supervisor: Supervisor,
    clock: Clock,
    statistics: CallStatistics,
    wanted: ClientRequest,
    timeout: float,
    lane: Lane,
    future: CallFuture,
    goes_on: GoesOn = lambda *_: False,
    on_done: OnDone | None = None,
) -> None:
    """Make a call without waiting, for `future`. Progress and the future's callbacks run on `lane`, in order.

    So does `on_done`, before the future is done. `goes_on` runs on the thread that ends the call, and must be quick.
    Raises Overloaded if there is no thread for the lane.
    """
    lane.require_thread()
    started = clock.monotonic()

    def done(call: Call) -> None:
        statistics.record(
            clock.monotonic() - started, failed=call.error is not None or call.result.get("isError") is True
        )
        if goes_on(call.error, call.result):
            return
        if on_done is not None:
            lane.post(lambda: on_done(call.error, call.result))
        lane.post(lambda: future.complete(call.error, call.result))

    on_progress = wanted.on_progress
    call = _call(
        supervisor,
        wanted,
        started,
        timeout,
        on_done=done,
        on_progress=None if on_progress is None else lambda params: lane.post(lambda: _report(on_progress, params)),
    )
    future.attach(lambda error: supervisor.call_queue.cancel(call, error))
    supervisor.call_queue.submit(call)
    supervisor.watch(call)
