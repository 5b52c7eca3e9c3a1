"""`StartRecorder`: records the requests through the channel of one start of a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

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
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending, Outgoing
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
    stable_start,
    without_meta,
)

_ENDING_SECONDS = 1.0

_UNRECORDED = ("ping", SUBSCRIBE, SUBSCRIBED, "notifications/cancelled")
"""Not recorded, because their time and number vary."""

_MACHINE = "roots/list"
"""Its answer contains folders of this machine, so it is not recorded."""


class _Pending(msgspec.Struct):
    item: Outgoing
    exchange: RecordedExchange


class Recording:
    def __init__(self) -> None:
        self.lock = reentrant_lock()
        """Guards the attributes below, and the state of all recorders."""
        self.stopped = False
        self.starts: dict[str, list[StartRecorder]] = {}

    def begin(self, server: str) -> StartRecorder:
        start = StartRecorder(self)
        with self.lock:
            if not self.stopped:
                self.starts.setdefault(server, []).append(start)
        return start

    def is_settled(self, ready: set[str]) -> bool:
        """Whether each server in `ready` has a recorder that saw it ready and not lost since."""
        with self.lock:
            known = [starts for name, starts in self.starts.items() if name in ready]
            return all(any(start.is_ready for start in starts) for starts in known)


class StartRecorder:
    """Records one start of a server, as the `Recorder` between the channel and the connection."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._requests: list[_Pending] = []
        self._by_id: dict[str, _Pending] = {}
        """The ids are texts, because some servers send ids back as strings."""
        self._asked: dict[RequestId, Step] = {}
        self._greeting: list[Step] = []
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._failure: str | None = None
        self._ending: Ending | None = None
        self._ended = False
        self._closing = False

    # Between the channel and the connection; see `Recorder`.

    def listener(self, connection: Connection) -> ChannelListener:
        self._connection = connection
        return cast("ChannelListener", _Listener(self, connection))

    def channel(self, channel: Channel) -> Channel:
        self._channel = channel
        return cast("Channel", _Channel(self, channel))

    def failed(self, error: MCPError) -> None:
        self._failure = error.message

    # Reports from both sides, on the threads of callers and of the channel.

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
            self.request_failed(line.answered_id(), InvalidResponse("the answer is longer than the limit allows"))
            return
        try:
            decoded = decode(line)
        except NestedTooDeep as error:
            self.request_failed(error.identifier, InvalidResponse(f"the answer is {error}"))
        except NotAMessage:
            return
        else:
            with self._recording.lock:
                if not self._recording.stopped:
                    for message in decoded if isinstance(decoded, list) else [decoded]:
                        self._note(message)

    def request_failed(self, identifier: RequestId | None, error: MCPError) -> None:
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
            if (pending := self._answered(message.id)) is None:
                return
            exchange = pending.exchange
            if isinstance(message, ErrorResponse):
                exchange.error = message.error
            elif isinstance(message.result, dict):
                exchange.result = message.result
            else:
                exchange.failed = Failure.of(InvalidResponse(f"the result of {exchange.request} is not an object"))
        elif message.method in _UNRECORDED:
            return
        elif isinstance(message, Request):
            step = self._asked[message.id] = Step(request=message.method, params=without_meta(message.params))
            self._steps().append(step)
        else:
            self._note_notification(message)

    def _answered(self, identifier: RequestId | None) -> _Pending | None:
        """The request of an answer; None if the client has given it up."""
        pending = self._by_id.pop(str(identifier), None)
        return None if pending is None or pending.item.ended else pending

    def _note_notification(self, message: Notification) -> None:
        params = dict(message.params)
        if message.method == "notifications/progress":
            pending = self._by_id.get(str(params.pop("progressToken", None)))
            if pending is not None:
                pending.exchange.meanwhile.append(Step(notification=message.method, params=params))
            return
        meta = params.pop("_meta", None)
        meta = dict(meta) if isinstance(meta, dict) else {}
        subscribed = meta.pop(SUBSCRIPTION_ID, None) is not None
        params |= {"_meta": meta} if meta else {}
        self._steps().append(Step(notification=message.method, params=params, subscribed=subscribed))

    def _steps(self) -> list[Step]:
        """The list for a message that the server sends on its own: of a waiting call, or else of the last call."""
        calls = [one for one in self._requests if one.exchange.is_call]
        if not calls:
            return self._greeting
        waiting = (one.exchange.meanwhile for one in calls if not (one.exchange.is_over or one.item.ended))
        return next(waiting, calls[-1].exchange.afterwards)

    # The outcome.

    @property
    def is_ready(self) -> bool:
        connection = self._connection
        return not self._ended and connection is not None and connection.state is ConnectionState.READY

    def redact(self, text: str) -> str:
        return text if self._channel is None else self._channel.redact(text)

    def start(self, redact: Callable[[str], str]) -> Start | None:
        """The start for the cassette; None if another recording may lack it, see `stable_start`."""
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


class _Forwarding:
    def __init__(self, recorder: StartRecorder, target: Any) -> None:
        self._recorder, self._target = recorder, target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class _Listener(_Forwarding):
    """See `ChannelListener`; the target is the connection."""

    def message_received(self, line: bytes | OversizedLine, call_id: int | None = None) -> None:
        self._recorder.received(line)
        self._target.message_received(line, call_id)

    def request_failed(self, call_id: int, error: MCPError) -> None:
        self._recorder.request_failed(call_id, error)
        self._target.request_failed(call_id, error)

    def channel_ended(self) -> None:
        self._recorder.ended()
        self._target.channel_ended()


class _Channel(_Forwarding):
    """See `Channel`; the target is the channel of the transport."""

    def send(self, item: Outgoing) -> bool:
        return bool(self._target.send(_Item(self._recorder, item)))

    def ending(self, wait: float) -> Ending | None:
        ending: Ending | None = self._target.ending(wait)
        if ending is not None:
            self._recorder.learnt(ending)
        return ending

    def stop_writing(self) -> bool:
        # The server ends at the end of its input, before or after `close`.
        self._recorder.closing()
        return bool(self._target.stop_writing())

    def close(self, grace: float) -> Ending:
        self._recorder.closing()
        return cast("Ending", self._target.close(grace))


class _Item(_Forwarding):
    """See `Outgoing`; the target is a message, which reports to the recorder when it is written."""

    def begin_write(self) -> bool:
        if not self._target.begin_write():
            return False
        self._recorder.written(self._target)
        return True

    def undo_write(self) -> None:
        self._recorder.unwritten(self._target)
        self._target.undo_write()
