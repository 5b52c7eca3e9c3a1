"""One connection to one server: its state, and the table that matches answers with calls.

A connection goes from CREATED to READY to CLOSED once; if another connection takes its place, it goes from READY
through DRAINING to CLOSED. Any thread may submit a call. The channel's threads deliver answers; over HTTP the callers'
threads do so too. The table of calls in flight needs no lock: each of its operations is one atomic dict operation, and
a call belongs to the thread that pops it.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
from opentelemetry.context import Context

from gaia.mcp.errors import (
    AnswerLost,
    CallCancelled,
    InvalidResponse,
    MCPError,
    Overloaded,
    ServerCrashed,
    answered_error,
)
from gaia.mcp.observation.request_spans import Observation, Observer
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.protocol.framing import OversizedLine
from gaia.mcp.protocol.gateway_answers import decode_answer, failure_in, failure_of
from gaia.mcp.protocol.messages import (
    ErrorResponse,
    Message,
    NestedTooDeep,
    NotAMessage,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_notification,
)
from gaia.mcp.protocol.rounds import check_result_type
from gaia.mcp.rpc.call import Call, RequestOwner
from gaia.mcp.rpc.channel import Channel, ChannelListener, Frame, Outgoing
from gaia.mcp.rpc.incoming_requests import IncomingRequests
from gaia.mcp.rpc.unparsed_output import SAMPLE_LENGTH, UnparsedCounter, UnparsedOutput
from gaia.runtime.clock import Clock
from gaia.runtime.handover import on_engine_thread
from gaia.runtime.locks import WeakObjects, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.rates import EventRate, TokenBucket
from gaia.runtime.redaction import MASK, Redactor, mask_strings, secret_headers
from gaia.telemetry.spans import Executor, tracing_is_off

logger = get_logger(__name__)

_MAX_ID = 20

_MAX_NOTIFICATION = 64 * 1024
"""Bytes, because thousands of notifications may wait for the supervisor."""

_MAX_LOGS = 1_000
"""Log messages in one second, because each may be written to a log and sent to every client of a gateway."""

_MAX_ERROR = 16 * 1024
"""Characters of an error's message, which goes into logs, spans and the status."""


class ConnectionState(enum.Enum):
    CREATED = "created"
    READY = "ready"
    DRAINING = "draining"
    """Another connection has taken its place. It takes no new calls, and finishes the calls that it has."""
    CLOSED = "closed"


_READY = ConnectionState.READY
"""Each call reads it twice; a module name is faster to find than the member of an enumeration."""

_TRANSITIONS = {
    ConnectionState.CREATED: {ConnectionState.READY, ConnectionState.CLOSED},
    ConnectionState.READY: {ConnectionState.DRAINING, ConnectionState.CLOSED},
    ConnectionState.DRAINING: {ConnectionState.CLOSED},
    ConnectionState.CLOSED: set[ConnectionState](),
}


class Connection:
    """The calls to one generation of a server. The module's docstring has the rules for threads."""

    def __init__(
        self,
        name: str,
        generation: int,
        clock: Clock,
        *,
        max_pending: int,
        on_notification: Callable[[Notification], None],
        on_ended: Callable[[Connection], None],
        on_request: Callable[[Request], bool] = lambda _: False,
        observer: Observer | None = None,
        executor: Executor | None = None,
        on_lost: Callable[[Call, AnswerLost], bool] = lambda _call, _error: False,
        post: Executor = lambda task: task(),
    ) -> None:
        """The hooks run on the channel's threads: they must be quick and must not raise.

        `on_request` gets the server's requests, see `IncomingRequests`. `on_lost` gets a call whose answer was lost
        while the channel goes on; it returns True if it takes over the call.

        `observer` records requests and notifications in both directions. `executor` runs the application's span
        processors, because the channel's threads must not wait for them. `post` sends a cancellation from another
        thread if a span has to be started for it, which may take a second.
        """
        self.name = name
        self.generation = generation
        self.state = ConnectionState.CREATED
        self.negotiated = NOT_NEGOTIATED
        """The protocol that client and server have agreed on. The thread that opens the connection sets it."""
        self.last_heard = clock.monotonic()
        """When the last message of the server arrived; a reading of the clock."""
        self.has_answered = False
        """Whether the server has answered a call of the application (a listing of its tools does not count)."""
        self._clock = clock
        self._max_pending = max_pending
        self._on_notification = on_notification
        self._on_ended = on_ended
        self.reads_failures = False
        """Whether the server is a gateway: failures behind it then end calls like failures in this process."""
        self.trace_context: Context | None = None
        """The parent of the spans of the supervisor's messages; None is the current context. Only for its thread."""
        self._observer = observer or Observer(name)
        self._observer.session_id = lambda: self.session_id
        self._executor = executor
        self.requests = IncomingRequests(on_request, self._respond, self._headers_for, self._observer, executor)
        self._unparsed = UnparsedCounter(name, self._observer, self.redact)
        self._on_lost = on_lost
        self._post = post
        self._in_flight: dict[RequestId, Call] = {}
        self._relays = False
        """Whether some results are passed on undecoded. Threads that submit such a call set it; nothing resets it."""
        self.channel: Channel | None = None
        self.pins: WeakObjects[object] = WeakObjects()
        """The open handles whose calls all go to this connection."""
        self._warned_of_long_notifications = False
        """Without a lock, so two threads may both warn."""
        self._log_bucket = TokenBucket(_MAX_LOGS, _MAX_LOGS, 0.0)
        self._log_warnings = EventRate(1.0, clock.monotonic)
        self._transition = reentrant_lock()
        """Owns `state`, which any thread may read without the lock."""

    @property
    def unparsed(self) -> UnparsedOutput:
        return self._unparsed.total

    @property
    def session_id(self) -> str | None:
        """The server's id of the session; None over pipes, and in the era without sessions."""
        # Channels over pipes have no such attribute.
        return getattr(self.channel, "session_id", None)

    @property
    def in_flight(self) -> int:
        return sum(not call.is_standing for call in list(self._in_flight.values()))

    @property
    def load(self) -> int:
        """About `in_flight`, at once."""
        return len(self._in_flight)

    @property
    def has_calls(self) -> bool:
        """Whether a call of the application is in flight."""
        return any(not call.bound for call in list(self._in_flight.values()))

    def has(self, call: Call) -> bool:
        return call.id in self._in_flight

    @property
    def is_in_use(self) -> bool:
        return bool(self.pins.present()) or self.in_flight > 0

    def has_older_than(self, call: Call) -> bool:
        return any(other.id < call.id and not other.is_standing for other in list(self._in_flight.values()))

    def move_to(self, state: ConnectionState) -> None:
        """Raises ValueError for a transition that the state machine does not allow."""
        with self._transition:
            if state not in _TRANSITIONS[self.state]:
                raise ValueError(f"a connection cannot go from {self.state.value} to {state.value}")
            self.state = state

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        self.negotiated = negotiated
        self._observer.protocol_version = negotiated.revision
        if self.channel is not None:
            self.channel.set_protocol_version(negotiated)

    def submit(self, call: Call) -> bool:
        """Send `call`, or end it with `Overloaded`. False if the connection takes no calls: try another one."""
        channel = self.channel
        if channel is None or (self.state is not _READY and self._takes_no(call)):
            return False
        in_flight = self._in_flight
        if len(in_flight) >= self._max_pending and not call.bound:
            self._refuse(call)
            return True
        if call.negotiated is not self.negotiated:
            call.add_meta(self.negotiated)
        if call.owner is not None:
            self._relays = True
        in_flight[call.id] = call
        # `close` sets the state, then empties the table. So either `close` finds this call in the table, or this thread
        # sees the state. The supervisor, too, drains a connection and then looks whether its table is empty.
        if self.state is not _READY and self._takes_no(call):
            return in_flight.pop(call.id, None) is None
        if not channel.send(call):
            # Without room to write it, a request of the supervisor stays in the table and times out like an unanswered
            # one: the server does not read.
            if not call.bound:
                in_flight.pop(call.id, None)
                self._refuse(call)
        elif call.ended:
            # The caller may have given up before the call was in the table, where it would stay for ever.
            self.cancel_call(call, "given up")
        return True

    def _takes_no(self, call: Call) -> bool:
        state = self.state
        return state is ConnectionState.CLOSED or (
            state is ConnectionState.DRAINING and not (call.bound or call.pinned)
        )

    def observe(self, method: str, params: dict[str, Any] | None, context: Context | None = None) -> Observation:
        """Record a message that is about to be sent. `context` is the parent of its span; None is the current one."""
        context = self.trace_context if context is None else context
        return self._observer.begin(method, params, context=context, executor=self._executor)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        if self.channel is not None:
            self._notify(self.channel.send, method, params, None)

    def _notify(
        self,
        send: Callable[[Frame], object],
        method: str,
        params: dict[str, Any] | None,
        context: Context | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        observation = self.observe(method, params, context)
        params = observation.prepare(params)
        send(Frame(encode_notification(method, params), method, params, headers))
        observation.ended(None, {})

    def expire(self, call: Call) -> bool:
        is_ended = call.finish(error=call.timed_out())
        self.cancel_call(call, "timeout")
        return is_ended

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        is_ended = call.finish(error=error)
        self.cancel_call(call, error.message)
        return is_ended

    def cancel_call(self, call: Call, reason: str) -> None:
        """Forget a call that its caller gave up; notify the server if it may have seen the call ("Cancellation")."""
        if self._in_flight.pop(call.id, None) is None:
            return
        # The specification forbids cancelling `initialize`.
        if call.written and call.method != "initialize" and self.state is not ConnectionState.CLOSED:
            assert self.channel is not None, "what was written went through a channel"
            params = {"requestId": call.id, "reason": reason}
            context = None if call.observer is None else call.observer.context
            tell = partial(self._notify, self.channel.cancel, "notifications/cancelled", params, context, call.headers)
            if on_engine_thread() and not tracing_is_off(context):
                # This may be the thread that ends all late calls; it must not wait.
                self._post(tell)
            else:
                tell()

    def close(self) -> Iterator[Call]:
        """Enter CLOSED and yield the calls that are still unanswered, oldest first.

        A call that the iterator has not yielded yet stays in the table; the next `close` yields it.
        """
        with self._transition:
            self.state = ConnectionState.CLOSED
        self.requests.close()
        pop = self._in_flight.pop
        return (call for identifier in list(self._in_flight) if (call := pop(identifier, None)) is not None)

    # The methods of `ChannelListener`.

    def channel_ended(self) -> None:
        self._on_ended(self)

    def awaits_answers(self) -> bool:
        return self.in_flight > 0

    def request_failed(self, call_id: int, error: MCPError) -> None:
        call = self._take(call_id)
        if call is None or (isinstance(error, AnswerLost) and self._on_lost(call, error)):
            return
        call.finish(error=error)

    def message_received(self, line: bytes | OversizedLine, call_id: int | None = None) -> None:
        if isinstance(line, OversizedLine):
            problem = f"{line.size} bytes long, more than the limit allows"
            self._unreadable(line.answered_id(), problem, line.size, line.head)
            return
        if self._relays and self._relay(line):
            return
        try:
            message = decode(line)
        except NotAMessage as error:
            identifier = error.identifier if isinstance(error, NestedTooDeep) else None
            if line.strip():
                self._unreadable(identifier, str(error), len(line), line)
            return
        self.last_heard = self._clock.monotonic()
        if type(message) is Response:
            self._answered(message)
        elif type(message) is list:
            for item in message:
                self._dispatch(item, len(line), call_id)
        else:
            self._dispatch(message, len(line), call_id)  # type: ignore[arg-type]

    def _unreadable(self, answered: RequestId | None, problem: str, size: int, head: bytes) -> None:
        call = None if answered is None else self._take(answered)
        if call is not None:
            call.finish(error=InvalidResponse(f"the answer to {call.method} is {problem}"))
        self._unparsed.count(size, head)

    def _relay(self, line: bytes) -> bool:
        """End the call that `line` answers, if its result is passed on undecoded. False: treat the line as usual."""
        answer = decode_answer(line)
        if answer is None:
            return False
        identifier, result = answer
        call = self._in_flight.get(identifier)
        if call is None or call.owner is None or self._in_flight.pop(identifier, None) is None:
            return False
        try:
            self.last_heard = self._clock.monotonic()
            if not self.has_answered:
                self._note_answer(call)
            read_failure = self._failure_in if self.reads_failures else None
            call.finish_raw(result, is_stateless=not self.negotiated.server_may_ask, read_failure=read_failure)
        except BaseException:
            # See `_answered`.
            call.finish(error=ServerCrashed(f"the answer to {call.method} was lost by an internal error"))
            raise
        return True

    def owners_of(self, call_id: int | None) -> list[RequestOwner]:
        """The owners of the calls that a message may belong to.

        A message on the stream of a call belongs to that call; any other may belong to all calls in flight. An owner
        appears once for each of its calls.
        """
        if call_id is not None:
            call = self._in_flight.get(call_id)
            return [] if call is None or call.owner is None else [call.owner]
        calls = list(self._in_flight.values())
        return [call.owner for call in calls if call.owner is not None and not call.ended]

    def calls_behind(self, call_id: int | None) -> list[Call]:
        """The application's calls in flight to which a question of the server may belong; see `owners_of`."""
        call = None if call_id is None else self._in_flight.get(call_id)
        calls = list(self._in_flight.values()) if call_id is None else [call] if call is not None else []
        return [call for call in calls if not (call.bound or call.is_standing or call.ended)]

    def _dispatch(self, message: Message, size: int, call_id: int | None) -> None:
        if call_id is not None and isinstance(message, Notification | Request):
            message = msgspec.structs.replace(message, call_id=call_id)
        if type(message) is Response:
            self._answered(message)
        elif type(message) is Notification:
            if size > _MAX_NOTIFICATION:
                if not self._warned_of_long_notifications:
                    self._warned_of_long_notifications = True
                    method = message.method[:SAMPLE_LENGTH]
                    logger.warning("notification_too_long", server=self.name, method=method, size=size)
            elif message.method == "notifications/progress":
                self._report_progress(message)
            elif message.method != "notifications/message":
                self._on_notification(message)
            else:
                self._log_received(message)
        elif type(message) is ErrorResponse:
            self._fail(message)
        elif type(message) is Request:
            if self.negotiated.server_may_ask:
                self.requests.received(message)
            else:
                logger.warning("server_request_ignored", server=self.name, method=message.method[:SAMPLE_LENGTH])

    def _take(self, identifier: RequestId) -> Call | None:
        key = identifier if type(identifier) is int else _own_id(identifier)
        call = None if key is None else self._in_flight.pop(key, None)
        if call is None:
            # The call timed out or was cancelled, or this is a second answer.
            logger.debug("answer_ignored", server=self.name, call_id=str(identifier)[:_MAX_ID])
        return call

    def _answered(self, message: Response) -> None:
        # Most ids come back unchanged, and this runs for every answer.
        call = self._in_flight.pop(message.id, None) or self._take(message.id)
        if call is None:
            return
        try:
            if not self.has_answered:
                self._note_answer(call)
            result = message.result
            if type(result) is not dict:
                call.finish(error=InvalidResponse(f"the result of {call.method} is not an object"))
            elif "_meta" in result and (failure := self._failure_in(call, result)) is not None:
                call.finish(error=failure)
            elif self.negotiated.server_may_ask or (error := check_result_type(call.method, result)) is None:
                call.finish(result)
            else:
                call.finish(error=error)
        except BaseException:
            # The exception loses the connection. This call is no longer in the table, so the loss would not end it.
            call.finish(error=ServerCrashed(f"the answer to {call.method} was lost by an internal error"))
            raise

    def _failure_in(self, call: Call, result: dict[str, Any]) -> MCPError | None:
        if result.get("isError") is not True or not self.reads_failures or call.bound:
            return None
        failure = failure_in(result)
        if failure is not None:
            failure.message = self._redact_for(call, failure.message)
        return failure

    def _fail(self, message: ErrorResponse) -> None:
        call = None if message.id is None else self._take(message.id)
        error = message.error
        text = self._redact_for(call, _text_of(error))
        if call is None:
            # `_take` has logged a late answer, such as the answer to a subscription when the server is stopped.
            if message.id is None:
                logger.warning("server_error", server=self.name, error=text[:SAMPLE_LENGTH])
            return
        self._note_answer(call)
        if isinstance(error, dict) and type(error.get("code")) is int:
            code, data = error["code"], error.get("data")
            failure = failure_of(code, text, data) if self.reads_failures and not call.bound else None
            if failure is not None and failure.delivery == "not_sent":
                # The gateway did not send it to its server. If this is a repeat, the first sending still counts.
                call.undo_write()
            call.finish(error=failure or answered_error(code, text, data))
        else:
            call.finish(error=InvalidResponse("the server answered with an error object that has no integer code"))

    def _note_answer(self, call: Call) -> None:
        if not call.bound and call.method != "tools/list":
            self.has_answered = True

    def _report_progress(self, message: Notification) -> None:
        key = _own_id(message.params.get("progressToken"))
        call = None if key is None else self._in_flight.get(key)
        if call is None:
            return
        call.progressed(self._clock.monotonic())
        if call.observer is not None:
            call.observer.progressed(message.params)
        if call.on_progress is not None:
            call.on_progress(message.params)

    def _log_received(self, message: Notification) -> None:
        # A server's logs must not take all the time.
        if self._log_bucket.delay(self.last_heard) > 0:
            if self._log_warnings.passes(None) is not None:
                logger.warning("server_logs_dropped", server=self.name, limit=_MAX_LOGS)
            return
        self._log_bucket.take()
        if self._relays:
            self._relay_log(message)
        self._on_notification(message)

    def _relay_log(self, message: Notification) -> None:
        owners = [owner for owner in self.owners_of(message.call_id) if owner.log_level is not None]
        # A server of the stateless era logs for one request, the one that asked for logs. A server of the handshake era
        # logs for all clients that see it.
        if len(owners) > 1 and not self.negotiated.server_may_ask:
            return
        if owners:
            params = mask_strings(message.params, self.redact)
            for owner in owners:
                owner.logged(params)

    def _headers_for(self, call_id: int | None) -> Mapping[str, str] | None:
        """The headers of the call on whose stream the server has asked: its user answers."""
        call = None if call_id is None else self._in_flight.get(call_id)
        return None if call is None else call.headers

    def _respond(self, answer: Outgoing) -> bool:
        if self.channel is None or self.state is ConnectionState.CLOSED:
            # The answer is not needed any more, so it counts as written.
            return answer.begin_write()
        return self.channel.send(answer)

    def redact(self, text: str) -> str:
        # A message may arrive before the channel is attached: its secrets are not known yet.
        return MASK if self.channel is None else self.channel.redact(text)

    def _redact_for(self, call: Call | None, text: str) -> str:
        text = self.redact(text)
        if call is not None and call.headers is not None:
            text = Redactor(secret_headers(call.headers))(text)
        return text[:_MAX_ERROR]

    def _refuse(self, call: Call) -> None:
        waiting = f"server {self.name!r} already has {self._max_pending} calls waiting"
        call.finish(error=Overloaded(f"{waiting}; try again later, or raise maxPending"))


def _own_id(identifier: Any) -> int | None:
    """The id as this client assigned it, even if the server sends it back as a string. None if it cannot be one."""
    if type(identifier) is int:
        return identifier
    if type(identifier) is str and identifier.isdecimal() and len(identifier) <= _MAX_ID:
        return int(identifier)
    return None


def _text_of(error: Any) -> str:
    # Only a string is shown: formatting a deeply nested value would raise RecursionError.
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


class CountedConnection(Connection):
    """Reports once that the limit of requests is reached, and knows when the last request was made.

    A separate class, because every call passes through `submit` and most servers have no such limit.
    """

    last_request = -math.inf
    """A reading of the clock. Any thread sets it; if several do so at once, any of their values will do."""
    _next: Callable[[], int] = itertools.repeat(0).__next__
    _limit = -1
    _on_reached: Callable[[], object] = staticmethod(lambda: None)

    def count(self, limit: int, on_reached: Callable[[], object]) -> None:
        """Call `on_reached` in the thread that submits request number `limit`. Call this before the first request."""
        # Each step of the counter is atomic, so it needs no lock.
        self._next = itertools.count(1).__next__
        self._limit, self._on_reached = limit, on_reached

    def submit(self, call: Call) -> bool:
        submitted = super().submit(call)
        if submitted and not call.bound:
            self.last_request = call.now
            if self._next() == self._limit:
                self._on_reached()
        return submitted


class Recorder(Protocol):
    """Records the messages of one start of a server (`gaia.testing.record`). Never blocks, never raises."""

    def listener(self, connection: Connection) -> ChannelListener:
        """The listener for the transport. It passes all reports on to `connection`."""

    def channel(self, channel: Channel) -> Channel:
        """The channel for the connection. It passes all messages on to the channel that the transport has opened."""

    def failed(self, error: MCPError) -> None:
        """The transport could not open a channel."""


class Recorders:
    """The recorders of the servers of one manager or one client. Each later start of a server gets one from `new`."""

    def __init__(self) -> None:
        self.new: Callable[[str], Recorder] | None = None
        """Makes the recorder for one start of the named server; None while nothing is recorded. Any thread may set it;
        each start reads it once."""
