"""One connection to one server: its state, and the table that matches answers with calls.

A connection walks CREATED → READY → CLOSED once. Any thread may submit a call; only the channel's reader delivers
answers. The table of calls in flight needs no lock, because each of its operations is one atomic dict operation and a
call belongs to whoever pops it.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.log import get_logger
from gaia.mcp.client.protocol.framing import OversizedLine
from gaia.mcp.client.protocol.messages import (
    METHOD_NOT_FOUND,
    ErrorResponse,
    Message,
    NotAMessage,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_result,
)
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.channel import Channel, Frame
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.errors import InvalidResponse, JsonRpcError, Overloaded

__all__ = ["Connection", "ConnectionState", "Noise"]

logger = get_logger(__name__)

_SAMPLE_BYTES = 200


class ConnectionState(enum.Enum):
    CREATED = "created"
    READY = "ready"
    CLOSED = "closed"


_TRANSITIONS = {
    ConnectionState.CREATED: {ConnectionState.READY, ConnectionState.CLOSED},
    ConnectionState.READY: {ConnectionState.CLOSED},
    ConnectionState.CLOSED: set[ConnectionState](),
}


class Noise(msgspec.Struct, frozen=True):
    """What a server wrote on its standard output that is no JSON-RPC message."""

    lines: int = 0
    size: int = 0
    """Bytes."""
    last: str = ""
    """The beginning of the last such line."""

    def plus(self, later: Noise) -> Noise:
        return Noise(self.lines + later.lines, self.size + later.size, later.last or self.last)


class Connection:
    """The calls of one generation of a server. See the module's docstring for who may do what."""

    def __init__(
        self,
        name: str,
        generation: int,
        clock: Clock,
        *,
        max_pending: int,
        on_notification: Callable[[Notification], None],
        on_ended: Callable[[Connection], None],
    ) -> None:
        """`on_notification` and `on_ended` run on the channel's threads: they must be quick and must not raise."""
        self.name = name
        self.generation = generation
        self.state = ConnectionState.CREATED
        self.noise = Noise()
        self.last_heard = clock.monotonic()
        """When the server last said anything that is a message; a reading of the clock."""
        self._clock = clock
        self._max_pending = max_pending
        self._on_notification = on_notification
        self._on_ended = on_ended
        self._in_flight: dict[RequestId, Call] = {}
        self._channel: Channel | None = None
        self._transition = threading.Lock()
        """Owns `state`; readers may look at it without the lock."""

    def attach(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def channel(self) -> Channel | None:
        return self._channel

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def has_older_than(self, call: Call) -> bool:
        """True if a call that was made before `call` is still unanswered."""
        return any(isinstance(identifier, int) and identifier < call.id for identifier in list(self._in_flight))

    def move_to(self, state: ConnectionState) -> None:
        """Raises ValueError for a transition that is not in the state machine."""
        with self._transition:
            if state not in _TRANSITIONS[self.state]:
                raise ValueError(f"a connection cannot go from {self.state.value} to {state.value}")
            self.state = state

    def submit(self, call: Call) -> bool:
        """Send `call` and wait for its answer in the background. False if the connection is closed: try elsewhere.

        Ends the call with `Overloaded` when too many are under way.
        """
        channel = self._channel
        if channel is None or self.state is ConnectionState.CLOSED:
            return False
        in_flight = self._in_flight
        if len(in_flight) >= self._max_pending and not call.bound:
            self._refuse(call)
            return True
        in_flight[call.id] = call
        # `close` sets the state before it empties the table. So either it finds our call there, or we see the state.
        # mypy narrows `state` from the check above and cannot know that other threads change it.
        if self.state is ConnectionState.CLOSED:  # type: ignore[comparison-overlap]
            return in_flight.pop(call.id, None) is None
        if not channel.send(call):
            # A question of our own that finds no room counts as asked: the silence that follows is the server's.
            if not call.bound:
                in_flight.pop(call.id, None)
                self._refuse(call)
        elif call.ended:
            # Perhaps given up before it was in the table, where nobody would look for it again.
            self.abandon(call, "given up")
        return True

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        if self._channel is not None:
            self._channel.send(Frame(encode_notification(method, params)))

    def abandon(self, call: Call, reason: str) -> None:
        """Forget a call that its owner gave up, and tell the server if it may have seen it ("Cancellation")."""
        if self._in_flight.pop(call.id, None) is None:
            return
        # The specification forbids cancelling `initialize`.
        if call.written and call.method != "initialize" and self.state is not ConnectionState.CLOSED:
            self.notify("notifications/cancelled", {"requestId": call.id, "reason": reason})

    def close(self) -> list[Call]:
        """Enter CLOSED and hand over the calls that are still unanswered, oldest first."""
        with self._transition:
            self.state = ConnectionState.CLOSED
        orphans = []
        for identifier in list(self._in_flight):
            call = self._in_flight.pop(identifier, None)
            if call is not None:
                orphans.append(call)
        return orphans

    # What the channel's threads call.

    def channel_ended(self) -> None:
        self._on_ended(self)

    def message_received(self, line: bytes | OversizedLine) -> None:
        if isinstance(line, OversizedLine):
            self._answer_was_too_long(line)
            return
        try:
            message = decode(line)
        except NotAMessage:
            self._count_noise(line)
            return
        self.last_heard = self._clock.monotonic()
        if type(message) is list:
            for item in message:
                self._dispatch(item)
        else:
            self._dispatch(message)  # type: ignore[arg-type]

    def _dispatch(self, message: Message) -> None:
        if type(message) is Response:
            call = self._take(message.id)
            if call is not None:
                _finish(call, message.result)
        elif type(message) is Notification:
            if message.method == "notifications/progress":
                self._report_progress(message)
            else:
                self._on_notification(message)
        elif type(message) is ErrorResponse:
            self._fail(message)
        elif type(message) is Request:
            self._answer(message)

    def _take(self, identifier: RequestId) -> Call | None:
        call = self._in_flight.pop(identifier, None)
        if call is None and isinstance(identifier, str) and identifier.isdecimal():
            # Our ids are integers; some servers send them back as strings.
            call = self._in_flight.pop(int(identifier), None)
        if call is None:
            # The answer of a call that timed out or was cancelled, or a second answer: nobody waits for it.
            logger.debug("answer_ignored", server=self.name, call_id=identifier)
        return call

    def _fail(self, message: ErrorResponse) -> None:
        call = None if message.id is None else self._take(message.id)
        error = message.error
        if call is None:
            logger.warning("server_error", server=self.name, error=self.redact(str(error)[:_SAMPLE_BYTES]))
        elif isinstance(error, dict) and type(error.get("code")) is int:
            message_text = self.redact(str(error.get("message", "")))
            call.finish(error=JsonRpcError(error["code"], message_text, error.get("data")))
        else:
            call.finish(error=InvalidResponse("the server answered with an error object that has no integer code"))

    def _report_progress(self, message: Notification) -> None:
        token = message.params.get("progressToken")
        call = self._in_flight.get(token) if isinstance(token, (int, str)) else None
        if call is not None and call.on_progress is not None:
            call.on_progress(message.params)

    def _answer(self, request: Request) -> None:
        """Every client answers `ping`; what we have not declared is "method not found"."""
        if request.method == "ping":
            answer = encode_result(request.id, {})
        else:
            answer = encode_error(request.id, METHOD_NOT_FOUND, f"the client does not offer {request.method}")
        if self._channel is not None:
            self._channel.send(Frame(answer))

    def _answer_was_too_long(self, line: OversizedLine) -> None:
        identifier = line.answered_id()
        call = None if identifier is None else self._take(identifier)
        if call is not None:
            call.finish(error=InvalidResponse(f"the answer is {line.size} bytes long, more than the limit allows"))
        self._add_noise(line.size, line.head)

    def _count_noise(self, line: bytes) -> None:
        if line.strip():
            self._add_noise(len(line), line)

    def _add_noise(self, size: int, sample: bytes) -> None:
        """Only the reader counts noise; others read the immutable value."""
        text = self.redact(sample[:_SAMPLE_BYTES].decode("utf-8", "replace"))
        if self.noise.lines == 0:
            logger.warning("noise_on_stdout", server=self.name, sample=text)
        self.noise = Noise(self.noise.lines + 1, self.noise.size + size, text)

    def redact(self, text: str) -> str:
        return text if self._channel is None else self._channel.redact(text)

    def _refuse(self, call: Call) -> None:
        call.finish(
            error=Overloaded(
                f"server {self.name!r} already has {self._max_pending} calls waiting; try again later, "
                "or raise maxPending",
            )
        )


def _finish(call: Call, result: Any) -> None:
    if type(result) is dict:
        call.finish(result)
    else:
        call.finish(error=InvalidResponse(f"the result of {call.method} is not an object"))
