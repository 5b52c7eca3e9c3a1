"""`StartRecorder`: records what goes through the channel of one start of a server, request by request."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.protocol.eras import SUBSCRIPTION_ID
from gaia.mcp.protocol.framing import OversizedLine
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
)
from gaia.mcp.rpc.channel import CallerWork, Channel, ChannelListener, Ending, Outgoing
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.runtime.locks import reentrant_lock
from gaia.testing.cassette import (
    SUBSCRIBE,
    SUBSCRIBED,
    Failure,
    RecordedExchange,
    Start,
    Step,
    is_greeting,
    is_listing,
    stable_start,
    without_meta,
)

_ENDING_SECONDS = 1.0
"""Seconds to wait for the exit status of a server that has just ended."""

_UNRECORDED = ("ping", SUBSCRIBE, SUBSCRIBED, "notifications/cancelled")
"""Not recorded, because their time and number vary."""

_MACHINE = "roots/list"
"""Its answer has folders of this machine, so it is not recorded."""


class _Pending(msgspec.Struct):
    """A request of the client, as far as it got."""

    item: Outgoing
    exchange: RecordedExchange

    @property
    def is_call(self) -> bool:
        """Whether the application made it. Then the server's messages meanwhile most likely belong to it."""
        method = self.exchange.request
        return not (is_greeting(method) or is_listing(method))

    @property
    def is_open(self) -> bool:
        exchange = self.exchange
        return exchange.result is None and exchange.error is None and exchange.failed is None and not self.item.ended


class Recording:
    """The starts of all servers of a manager."""

    def __init__(self) -> None:
        self.lock = reentrant_lock()
        """Owns everything below, and the state of all recorders."""
        self.stopped = False
        """Whether recording has stopped."""
        self.starts: dict[str, list[StartRecorder]] = {}
        """By server, in the order of the starts."""

    def begin(self, server: str) -> StartRecorder:
        """Record a server that is about to start."""
        start = StartRecorder(self)
        with self.lock:
            if not self.stopped:
                self.starts.setdefault(server, []).append(start)
        return start

    def stop(self) -> None:
        with self.lock:
            self.stopped = True

    def is_settled(self, ready: set[str]) -> bool:
        """Whether each server in `ready` has a recorder that saw it ready and not lost since."""
        with self.lock:
            known = [starts for name, starts in self.starts.items() if name in ready]
            return all(any(start.is_ready for start in starts) for starts in known)


class StartRecorder:
    """Records one start of a server: the `Recorder` between the channel and the connection."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._requests: list[_Pending] = []
        """In the order in which they were written."""
        self._by_id: dict[str, _Pending] = {}
        """By id as text: some servers send ids back as strings."""
        self._asked: dict[RequestId, Step] = {}
        """The server's unanswered requests."""
        self._greeting: list[Step] = []
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._failure: str | None = None
        self._ending: Ending | None = None
        self._ended = False
        """Whether the server has ended by itself."""
        self._closing = False

    # Between the channel and the connection; see `Recorder`.

    def listener(self, connection: Connection) -> ChannelListener:
        self._connection = connection
        return _Listener(self, connection)

    def channel(self, channel: Channel) -> Channel:
        self._channel = channel
        return _Channel(self, channel)

    def failed(self, error: MCPError) -> None:
        self._failure = error.message

    # Reports of both, on the threads of callers and of the channel.

    def written(self, item: Outgoing) -> None:
        if item.method in _UNRECORDED or (item.method is not None and item.id is None):
            return
        message = json.loads(item.frame)
        with self._recording.lock:
            if self._recording.stopped:
                return
            if item.method is None:
                step = self._asked.pop(message["id"], None)
                if step is not None and step.request != _MACHINE:
                    step.answer = {key: message[key] for key in ("result", "error") if key in message}
                return
            params = {} if is_greeting(item.method) else without_meta(message.get("params"))
            pending = _Pending(item, RecordedExchange(request=item.method, params=params, crashed=self._ended))
            self._requests.append(pending)
            self._by_id[str(item.id)] = pending

    def unwritten(self, item: Outgoing) -> None:
        with self._recording.lock:
            pending = self._by_id.pop(str(item.id), None)
            if pending is not None and not self._recording.stopped:
                self._requests.remove(pending)

    def received(self, line: bytes | OversizedLine) -> None:
        if isinstance(line, OversizedLine):
            if (identifier := line.answered_id()) is not None:
                error = InvalidResponse("the answer is longer than the limit allows")
                self.request_failed(identifier, error)
            return
        try:
            decoded = decode(line)
        except NestedTooDeep as error:
            if error.identifier is not None:
                self.request_failed(error.identifier, InvalidResponse(f"the answer is {error}"))
            return
        except NotAMessage:
            return
        with self._recording.lock:
            if not self._recording.stopped:
                for message in decoded if isinstance(decoded, list) else [decoded]:
                    self._note(message)

    def request_failed(self, identifier: RequestId, error: MCPError) -> None:
        with self._recording.lock:
            if not self._recording.stopped and (pending := self._answered(identifier)) is not None:
                pending.exchange.failed = Failure.of(error)

    def ended(self) -> None:
        with self._recording.lock:
            if self._ended or self._closing or self._recording.stopped:
                return
            self._ended = True
            for pending in self._by_id.values():
                pending.exchange.crashed = not pending.item.ended

    def closing(self) -> None:
        with self._recording.lock:
            self._closing = True

    def learnt(self, ending: Ending) -> None:
        with self._recording.lock:
            if not self._closing:
                self._ending = self._ending or ending

    # The lock is held.

    def _note(self, message: Message) -> None:
        if isinstance(message, Response | ErrorResponse):
            pending = None if message.id is None else self._answered(message.id)
            if pending is not None and isinstance(message, ErrorResponse):
                pending.exchange.error = message.error
            elif pending is not None and isinstance(message, Response):
                if isinstance(message.result, dict):
                    pending.exchange.result = message.result
                else:
                    error = InvalidResponse(f"the result of {pending.exchange.request} is not an object")
                    pending.exchange.failed = Failure.of(error)
        elif isinstance(message, Request):
            if message.method not in _UNRECORDED:
                step = Step(request=message.method, params=without_meta(message.params))
                self._asked[message.id] = step
                self._steps().append(step)
        elif message.method not in _UNRECORDED:
            self._note_notification(message)

    def _answered(self, identifier: RequestId) -> _Pending | None:
        """The request of an answer; None if the client has given up on it."""
        pending = self._by_id.pop(str(identifier), None)
        return None if pending is None or pending.item.ended else pending

    def _note_notification(self, message: Notification) -> None:
        params = dict(message.params)
        if message.method == "notifications/progress":
            pending = self._by_id.get(str(params.pop("progressToken", None)))
            if pending is not None:
                pending.exchange.meanwhile.append(Step(notification=message.method, params=params))
            return
        meta = params.get("_meta")
        subscription = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if isinstance(meta, dict):
            params["_meta"] = {key: value for key, value in meta.items() if key != SUBSCRIPTION_ID}
        if not params.get("_meta"):
            params.pop("_meta", None)
        self._steps().append(Step(notification=message.method, params=params, subscribed=subscription is not None))

    def _steps(self) -> list[Step]:
        """The list for an unasked message of the server: of a waiting call, or else of the last call."""
        calls = [pending for pending in self._requests if pending.is_call]
        if not calls:
            return self._greeting
        waiting = next((pending for pending in calls if pending.is_open), None)
        return calls[-1].exchange.afterwards if waiting is None else waiting.exchange.meanwhile

    # The outcome.

    @property
    def is_ready(self) -> bool:
        connection = self._connection
        return not self._ended and connection is not None and connection.state is ConnectionState.READY

    def redact(self, text: str) -> str:
        return text if self._channel is None else self._channel.redact(text)

    def start(self, redact: Callable[[str], str]) -> Start | None:
        """The start for the cassette; None if another recording may not have it, see `stable_start`."""
        if self._failure is not None:
            return Start(failed=redact(self._failure))
        exchanges = [pending.exchange for pending in self._requests]
        return stable_start(exchanges, self._greeting, self._how_it_ended(), redact)

    def _how_it_ended(self) -> Ending | None:
        if not self._ended:
            return None
        if self._ending is None and self._channel is not None and not self._closing:
            self._ending = self._channel.ending(_ENDING_SECONDS)
        return self._ending or Ending()


class _Listener:
    """Passes everything from the channel to the connection; see `ChannelListener`."""

    def __init__(self, recorder: StartRecorder, connection: Connection) -> None:
        self._recorder = recorder
        self._connection = connection
        self.awaits_answers = connection.awaits_answers

    def message_received(self, line: bytes | OversizedLine, call_id: int | None = None) -> None:
        self._recorder.received(line)
        self._connection.message_received(line, call_id)

    def request_failed(self, call_id: int, error: MCPError) -> None:
        self._recorder.request_failed(call_id, error)
        self._connection.request_failed(call_id, error)

    def channel_ended(self) -> None:
        self._recorder.ended()
        self._connection.channel_ended()


class _Channel:
    """Passes everything from the connection to the channel; see `Channel`."""

    def __init__(self, recorder: StartRecorder, channel: Channel) -> None:
        self._recorder = recorder
        self._channel = channel
        self.cancel = channel.cancel
        self.set_protocol_version = channel.set_protocol_version
        self.redact = channel.redact
        self.memory = channel.memory
        self.after_fork = channel.after_fork

    @property
    def pid(self) -> int | None:
        return self._channel.pid

    @property
    def session_id(self) -> str | None:
        session: str | None = getattr(self._channel, "session_id", None)
        return session

    def send(self, item: Outgoing) -> bool:
        return self._channel.send(_Item(self._recorder, item))

    def ending(self, wait: float) -> Ending | None:
        ending = self._channel.ending(wait)
        if ending is not None:
            self._recorder.learnt(ending)
        return ending

    def stop_writing(self) -> bool:
        # The server ends at the end of its input, before `close` or after it.
        self._recorder.closing()
        return self._channel.stop_writing()

    def close(self, grace: float) -> Ending:
        self._recorder.closing()
        return self._channel.close(grace)


class _Item:
    """A message to write. It tells the recorder when it is written; see `Outgoing`."""

    def __init__(self, recorder: StartRecorder, item: Outgoing) -> None:
        self._recorder = recorder
        self._item = item
        self.frame = item.frame
        self.id = item.id
        self.method = item.method
        self.bound = item.bound
        self.loop = item.loop
        self.params = item.params
        self.run_in_caller: Callable[[CallerWork], bool] = item.run_in_caller

    @property
    def ended(self) -> bool:
        return self._item.ended

    @property
    def deadline(self) -> float:
        return self._item.deadline

    def begin_write(self) -> bool:
        if not self._item.begin_write():
            return False
        self._recorder.written(self)
        return True

    def undo_write(self) -> None:
        self._recorder.unwritten(self)
        self._item.undo_write()
