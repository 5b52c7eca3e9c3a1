"""The callers' side of a supervisor: make a call, wait for it, give up in time."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED
from typing import Any, Generic, Protocol, TypeVar

from gaia.mcp.errors import CallCancelled, Delivery, MCPError, ServerCrashed
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED
from gaia.mcp.protocol.messages import is_tool_error, value_size
from gaia.mcp.protocol.notifications import progress_of
from gaia.mcp.requests.client_request import ClientRequest, OnProgress
from gaia.mcp.rpc.call import Call, CallRoute, ProgressSink
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.rpc.relayed_request import RelayedRequest, RequestOwner
from gaia.mcp.supervision.callbacks import Callbacks
from gaia.mcp.supervision.status import CallStatistics
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.cancellation import CancelScope, current_scope
from gaia.runtime.clock import Clock
from gaia.runtime.deadlines import deadlines_of
from gaia.runtime.locks import TimedQueue, reentrant_lock
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

Outcome = dict[str, Any]

GoesOn = Callable[[MCPError | None, Outcome], bool]
"""Told the error of a call, or None and its result, at once; True says that the request goes on after it."""

SCOPE_CANCELLED = "cancelled together with the work that it was part of"

_MAX_UPDATES = 10_000
"""Reports of progress that wait for the caller's thread; what a server reports beyond that is dropped."""

_MAX_UPDATE_BYTES = 8 * 1024 * 1024
"""The size of these reports, together."""


class CallEntry(CallRoute, Protocol):
    """Where calls enter: a call queue."""

    @property
    def ready(self) -> Connection | None:
        """The connection that calls go to, if it is one of this program."""


class Supervised(Protocol):
    """What keeps one server alive: a supervisor of this program, or what stands for one elsewhere."""

    @property
    def call_queue(self) -> CallEntry: ...

    @property
    def next_id(self) -> Callable[[], int]: ...


S = TypeVar("S", bound=Supervised)


class Caller(Generic[S]):
    """Makes the requests of one client. Thread-safe."""

    def __init__(self, supervisor: S, clock: Clock, timeout: float) -> None:
        """`timeout` is in seconds, for requests without one of their own."""
        self.supervisor = supervisor
        """Replaced by the session when it connects again; each request reads it once."""
        self.statistics = CallStatistics()
        self._clock = clock
        self._deadlines = deadlines_of(clock)
        """Of calls that no thread waits for."""
        self.timeout = timeout
        """Replaced when the server gets another configuration."""

    def request(self, request: ClientRequest) -> Outcome:
        """Make a request and wait for its result object. Raises `MCPError`.

        `on_progress` runs in this thread, while it waits, so all progress has been reported when this returns.

        Inside of a `gaia.runtime.cancellation.CancelScope` the call is cancelled with the scope.
        """
        scope = current_scope()
        if scope is not None and scope.cancelled:
            raise CallCancelled(SCOPE_CANCELLED)
        clock, supervisor = self._clock, self.supervisor
        report: Callable[[], object] | None = None
        # No closures here: every call passes, and would pay for them.
        if request.options.on_progress is None:
            call = self._call(supervisor, request)
        else:
            call, report = self._call_with_progress(supervisor, request, request.options.on_progress)
        if scope is None:
            call.perform(supervisor.call_queue, clock, report)
        else:
            forget = _cancel_with(scope, call, supervisor.call_queue)
            try:
                call.perform(supervisor.call_queue, clock, report)
            finally:
                forget()
        error, result = call.error, call.result
        self.statistics.record(clock.monotonic() - call.now, failed=error is not None or is_tool_error(result))
        if error is not None:
            raise error
        return result

    def submit(self, request: ClientRequest, future: CallFuture, goes_on: GoesOn = lambda *_: False) -> None:
        """Make a request without waiting, for `future`, which is done as soon as the call has ended.

        Progress, the end of the request's observation and then the future's callbacks run on the future's lane.
        `goes_on` runs on the thread that ends the call, and must be quick.
        """
        supervisor = self.supervisor

        def done(call: Call) -> None:
            try:
                # Not twice. Without it, neither of the call and its future keeps the other.
                call.on_done = None
                failed = call.error is not None or is_tool_error(call.result)
                self.statistics.record(self._clock.monotonic() - call.now, failed=failed)
                if not goes_on(call.error, call.result):
                    end(future, request, call.error, call.result)
            except BaseException as error:
                # A mistake of ours must not leave the future undone.
                if not future.done():
                    reason = f"internal error: {exception_text(error)}"
                    future.complete(ServerCrashed(reason, delivery=call.delivery), {})
                raise

        on_progress = request.options.on_progress

        def progressed(params: Mapping[str, Any]) -> None:
            assert on_progress is not None, "progress is only reported if it is wanted"
            future.lane.post(functools.partial(_report, on_progress, params), size=value_size(params))

        call = self._call(supervisor, request, done, None if on_progress is None else progressed)
        future.attach(lambda error: supervisor.call_queue.cancel(call, error))
        # In this order: if this thread is interrupted here, the call ends at its deadline, wherever it is.
        self._deadlines.watch(call, supervisor.call_queue.expire)
        supervisor.call_queue.submit(call)

    def relay(
        self,
        request: ClientRequest,
        owner: RequestOwner,
        on_done: Callable[[RelayedRequest], None],
        on_progress: ProgressSink | None,
    ) -> Relay:
        """Make a request for a client of a gateway, without waiting, whose result stays bytes.

        The hooks run on the thread that ends the call, or hears of its progress, perhaps in here: they must be quick
        and must not raise.
        """
        supervisor, clock, statistics = self.supervisor, self._clock, self.statistics
        timeout = request.options.timeout
        connection = supervisor.call_queue.ready

        def done(call: Call) -> None:
            assert isinstance(call, RelayedRequest), "it was made here"
            try:
                call.on_done = None
                failed = call.error is not None or call.facts.is_error is True
                statistics.record(clock.monotonic() - call.now, failed=failed)
            finally:
                on_done(call)

        call = RelayedRequest(
            supervisor.next_id(),
            request.method,
            request.params,
            clock.monotonic(),
            self.timeout if timeout is None else timeout,
            repeatable=request.repeatable,
            negotiated=NOT_NEGOTIATED if connection is None else connection.negotiated,
            on_done=done,
            on_progress=on_progress,
            observer=request.observation,
            max_timeout=request.max_timeout,
            tool=request.tool,
            owner=owner,
        )
        if request.observation is not None:
            request.observation.numbered(call.id)
        relay = Relay(call, supervisor, clock)
        call_queue = supervisor.call_queue
        try:
            self._deadlines.watch(call, call_queue.expire)
            call_queue.submit(call)
        except BaseException:
            # Of a signal handler.
            call_queue.cancel(call, CallCancelled("the caller was interrupted"))
            raise
        return relay

    def _call(
        self,
        supervisor: Supervised,
        request: ClientRequest,
        on_done: Callable[[Call], None] | None = None,
        on_progress: ProgressSink | None = None,
    ) -> Call:
        timeout = request.options.timeout
        # The one that it is submitted to adds what was not known yet.
        connection = supervisor.call_queue.ready
        call = Call(
            supervisor.next_id(),
            request.method,
            request.params,
            self._clock.monotonic(),
            self.timeout if timeout is None else timeout,
            repeatable=request.repeatable,
            negotiated=NOT_NEGOTIATED if connection is None else connection.negotiated,
            on_done=on_done,
            on_progress=on_progress,
            observer=request.observation,
            max_timeout=request.max_timeout,
            tool=request.tool,
        )
        if request.observation is not None:
            request.observation.numbered(call.id)
        return call

    def _call_with_progress(
        self, supervisor: Supervised, request: ClientRequest, on_progress: OnProgress
    ) -> tuple[Call, Callable[[], object]]:
        """A call, and what reports its progress in the caller's thread."""
        updates = _Updates()
        call = self._call(supervisor, request, lambda _: updates.end(), updates.put)
        return call, functools.partial(_report_until_done, updates, call, self._clock, on_progress)


class Relay:
    """A call for a client of a gateway, under way. Thread-safe."""

    __slots__ = ("_call", "_clock", "_supervisor")

    def __init__(self, call: RelayedRequest, supervisor: Supervised, clock: Clock) -> None:
        self._call = call
        self._supervisor = supervisor
        self._clock = clock

    def cancel(self, reason: str) -> bool:
        """False if the call ended just before. The server is told."""
        return self._supervisor.call_queue.cancel(self._call, CallCancelled(reason))

    def allow(self, seconds: float) -> None:
        """Give the call so much time from now on, instead of what it has left: a person is asked, or has answered."""
        self._call.deadline = self._clock.monotonic() + seconds
        deadlines_of(self._clock).watch(self._call, self._supervisor.call_queue.expire)

    def resume(self) -> None:
        """Give the call its whole timeout from now on."""
        self.allow(self._call.timeout)


def _cancel_with(scope: CancelScope, call: Call, call_queue: CallRoute) -> Callable[[], None]:
    """Have the call cancelled with the scope. Returns a function that ends this."""
    return scope.on_cancel(lambda: call_queue.cancel(call, CallCancelled(SCOPE_CANCELLED)))


def end(future: CallFuture, request: ClientRequest, error: MCPError | None, result: Outcome) -> None:
    """End a submitted request: its future at once, its observation on the lane, before the future's callbacks."""
    try:
        if request.observation is not None:
            request.observation.stop()
            future.lane.post(functools.partial(request.observation.ended, error, result))
    finally:
        future.complete(error, result)


class _Updates:
    """Reports of progress, on their way from the threads that read to the caller's thread."""

    def __init__(self) -> None:
        self._queue: TimedQueue[tuple[int, Mapping[str, Any]] | None] = TimedQueue()
        """Each with its size; None is the end."""
        self._putting = reentrant_lock()
        """Owns `_put`: several threads may read what a server reports."""
        self._put = 0
        """Bytes in all."""
        self._taken = 0
        """Bytes in all; only the caller's thread changes it."""

    def put(self, params: Mapping[str, Any]) -> None:
        size = value_size(params)
        with self._putting:
            if self._queue.qsize() < _MAX_UPDATES and self._put - self._taken + size <= _MAX_UPDATE_BYTES:
                self._put += size
                self._queue.put((size, params))

    def end(self) -> None:
        self._queue.put(None)

    def take(self, clock: Clock, deadline: float) -> Mapping[str, Any] | None:
        """The next one; None at the end. Raises `queue.Empty` if there is none by `deadline`."""
        update: tuple[int, Mapping[str, Any]] | None = clock.get(self._queue, deadline)
        if update is None:
            return None
        self._taken += update[0]
        return update[1]


def _report_until_done(updates: _Updates, call: Call, clock: Clock, on_progress: OnProgress) -> None:
    while True:
        deadline = call.deadline
        try:
            params = updates.take(clock, deadline)
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
        logger.error("progress_callback_failed", error=exception_text(error))


class CallFuture(Future[ToolResult]):
    """The future of a submitted tool call. `cancel` works until the result is there, and tells the server.

    A thread of a connection or a supervisor completes it, and runs none of its callbacks: they run on a lane.
    """

    def __init__(self, lane: Callbacks) -> None:
        super().__init__()
        self.lane = lane
        self._cancel_call: Callable[[CallCancelled], bool] | None = None
        self._cancellation = CallCancelled("cancelled by its owner")
        self.answer: Outcome = {}
        """The server's result as it came, once the call has ended without an error."""
        self._unwanted = False

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

    def on_end(self, wake: Callable[[], object]) -> None:
        """Call `wake` on the thread that ends the call, or here and now if it has ended.

        For code of gaia's that is quick, never waits and never raises.
        """
        super().add_done_callback(lambda _: wake())

    def cancel(self) -> bool:
        """False if the call ended just before. A further round trip of the request is cancelled when it begins."""
        self._unwanted = True
        cancel_call = self._cancel_call
        if cancel_call is not None and cancel_call(self._cancellation):
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

    def attach(self, cancel_call: Callable[[CallCancelled], bool]) -> None:
        """Set the function that cancels the current round trip of the request."""
        self._cancel_call = cancel_call
        # `cancel` sets `_unwanted` and then reads `_cancel_call`, so one of the two threads sees the other.
        if self._unwanted:
            self.cancel()

    def complete(self, error: MCPError | None, result: Outcome) -> None:
        """The request has ended. For any thread: it releases those that wait, and runs no user code.

        May be called again after an exception, as long as the future is not done.
        """
        if error is self._cancellation:
            # A call that was cancelled otherwise has failed.
            self._set_cancelled()
            return
        if not self.running():
            self.set_running_or_notify_cancel()
        if error is not None:
            self.set_exception(error)
        else:
            self.answer = result
            self.set_result(ToolResult.from_server(result))
        # It keeps the call, with its arguments.
        self._cancel_call = None
