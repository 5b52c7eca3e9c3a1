"""One connection with calls under way, fed with bytes as a pipe feeds it; and what must hold whatever the bytes are.

What hypothesis and atheris have in common: `tests/fuzz/test_wire.py` and `tests/fuzz/fuzz_wire.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.framing import LineFramer
from gaia.mcp.protocol.messages import Message, NotAMessage, Notification, decode
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Ending, Frame, Outgoing
from gaia.mcp.rpc.connection import Connection
from gaia.runtime.clock import SystemClock

CALLS = 8
"""Their ids are 1 to 8."""

MAX_LINE = 2048
"""Short, so that lines that are too long are not rare."""

DIALECTS = (NegotiatedProtocol("2025-11-25"), NegotiatedProtocol("2026-07-28", server_may_ask=False))


class Sink:
    """A channel that takes whatever is sent, and keeps it."""

    pid: int | None = None

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, item: Outgoing) -> bool:
        if item.begin_write():
            self.sent.append(item.frame)
        return True

    def cancel(self, notice: Frame) -> None:
        self.send(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None: ...

    def redact(self, text: str) -> str:
        return text

    def ending(self, wait: float) -> Ending | None:
        return None

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        return Ending()

    def after_fork(self) -> None: ...


class Wire:
    """The client's end. `receive` and `close`, then `check`."""

    def __init__(self, negotiated: NegotiatedProtocol) -> None:
        self.connection = Connection(
            "fuzzed",
            generation=1,
            clock=SystemClock(),
            max_pending=CALLS,
            on_notification=self._notified,
            on_ended=lambda _: None,
        )
        self.connection.negotiated = negotiated
        self.channel = Sink()
        self.connection.channel = self.channel
        self.ends = dict.fromkeys(range(1, CALLS + 1), 0)
        """How many times each call ended."""
        self.calls = [
            Call(number, "tools/call", {"name": "any"}, 0.0, 1e9, on_done=self._done(number)) for number in self.ends
        ]
        self._framer = LineFramer(MAX_LINE)
        self._orphans: list[Call] = []
        for call in self.calls:
            assert self.connection.submit(call)

    def receive(self, data: bytes) -> None:
        """The server writes this much at once."""
        for line in self._framer.lines(data):
            self.connection.message_received(line)

    def close(self) -> None:
        """The server's output ends, and the connection is closed."""
        rest = self._framer.finish()
        if rest is not None:
            self.connection.message_received(rest)
        self._orphans = list(self.connection.close())

    def check(self) -> None:
        """Raises AssertionError for a call that ended twice or was lost, and for anything that could harm others."""
        for call in self.calls:
            ends = self.ends[call.id]
            assert ends <= 1, f"call {call.id} ended {ends} times"
            assert (call in self._orphans) == (ends == 0), f"call {call.id} was lost, or is waited for after its end"
            assert bool(ends) == call.ended
            if ends:
                assert isinstance(call.result, dict)
                assert call.error is None or isinstance(call.error, MCPError)
                json.dumps(call.result).encode()
        for frame in self.channel.sent:
            assert frame.endswith(b"\n")
            assert frame.count(b"\n") == 1
            json.loads(frame)
        if not self.connection.negotiated.server_may_ask:
            assert all(b'"method"' in frame for frame in self.channel.sent), "a stateless server is never answered"
        self.connection.unparsed.last.encode()

    @staticmethod
    def check_decoding(line: bytes) -> None:
        """A line is a message or noise, and nothing in a message breaks those who pass it on."""
        try:
            decoded = decode(line)
        except NotAMessage:
            return
        messages: list[Message] = decoded if isinstance(decoded, list) else [decoded]
        assert messages
        for message in messages:
            for field in message.__struct_fields__:
                json.dumps(getattr(message, field)).encode()

    def _notified(self, notification: Notification) -> None:
        json.dumps(notification.params).encode()

    def _done(self, number: int) -> Callable[[Call], None]:
        def done(_: Call) -> None:
            self.ends[number] += 1

        return done
