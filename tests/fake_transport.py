"""A server that is only a list of messages: for tests in which time and order are the subject, not the system."""

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.transports.base import ChannelTransport
from tests.waiting import PATIENCE

Json = dict[str, Any]
Answer = Callable[[Json], Json | None]
"""The result for a request; None if there is to be none."""


class FakeChannel:
    """One generation of the server. It answers what `answers` knows at once; the rest is up to the test."""

    def __init__(self, listener: ChannelListener, number: int, answers: dict[str, Answer]) -> None:
        self.pid: int | None = 1000 + number
        self.closed_with_grace: float | None = None
        self.abandoned = False
        self.writes_until_closed = True
        """Whether something may be written until the channel is closed completely."""
        self.memory_bytes: int | None = None
        """How much memory the server has."""
        self.final_stderr = ""
        """What is known to be on stderr once the channel is closed."""
        self._listener = listener
        self._answers = answers
        self._changed = threading.Condition()
        """Owns everything below; notified whenever something was written."""
        self._received: list[Json] = []
        self._waiting: deque[Outgoing] | None = None
        self._room = 0
        self._closed = False
        self._ending: Ending | None = None
        self._may_close = threading.Event()
        self._may_close.set()

    # What connection and supervisor call (`Channel`).

    def send(self, item: Outgoing) -> bool:
        with self._changed:
            if self._waiting is not None:
                if len(self._waiting) >= self._room:
                    return False
                self._waiting.append(item)
                return True
            if self._closed or not item.begin_write():
                return True
            message: Json = json.loads(item.frame)
            self._received.append(message)
            self._changed.notify_all()
        answer = self._answers.get(message.get("method", ""))
        result = None if answer is None or "id" not in message else answer(message)
        if result is not None:
            self.answer(message, result)
        return True

    def cancel(self, notice: Frame) -> None:
        self.send(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        pass

    def redact(self, text: str) -> str:
        return text

    def ending(self, wait: float) -> Ending | None:
        return self._ending

    def memory(self) -> int | None:
        return self.memory_bytes

    def stop_writing(self) -> bool:
        return not self.writes_until_closed

    def close(self, grace: float) -> Ending:
        with self._changed:
            self._closed = True
            self.closed_with_grace = grace
            self._changed.notify_all()
        assert self._may_close.wait(PATIENCE), "the test does not let the channel close"
        ending = self._ending or Ending(signal="SIGTERM")
        return Ending(ending.exit_code, ending.signal, self.final_stderr or ending.stderr_tail)

    def after_fork(self) -> None:
        self.abandoned = True

    # What a test calls.

    def requests(self, method: str) -> list[Json]:
        """The messages of this method that were written so far."""
        with self._changed:
            return [message for message in self._received if message.get("method") == method]

    @property
    def received(self) -> list[Json]:
        """All messages that were written so far."""
        with self._changed:
            return list(self._received)

    def answers_written(self) -> list[Json]:
        """The answers to requests of the server that were written so far."""
        with self._changed:
            return [message for message in self._received if "method" not in message]

    def wait_for(self, method: str, nth: int = 1) -> Json:
        """Wait until the nth message of this method has been written; return it."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._matching(method)) >= nth, PATIENCE):
                raise AssertionError(f"no {method} number {nth} came, but {self._received}")
            return self._matching(method)[nth - 1]

    def ask(self, method: str, params: Json | None = None, identifier: int | str = "q-1") -> None:
        """The server sends a request."""
        self.write({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params or {}})

    def wait_for_response(self, identifier: int | str = "q-1") -> Json:
        """Wait until a request of the server has been answered; return the answer."""

        def responses() -> list[Json]:
            return [one for one in self._received if "method" not in one and one["id"] == identifier]

        with self._changed:
            assert self._changed.wait_for(responses, PATIENCE), f"{identifier!r} is not answered, but {self._received}"
            return responses()[0]

    @property
    def responses(self) -> list[Json]:
        """What requests of the server were answered with so far."""
        with self._changed:
            return [message for message in self._received if "method" not in message]

    def wait_until_closing(self) -> None:
        """Wait until somebody closes the channel."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._closed, PATIENCE), "nobody closes the channel"

    def take_over(self, method: str) -> None:
        """From now on the test answers requests of this method."""
        self._answers.pop(method, None)

    def answer_calls(self) -> None:
        """From now on every tool call is answered at once."""
        self._answers["tools/call"] = lambda request: {"content": request["params"]["name"]}

    def answer(self, request: Json, result: Any) -> None:
        self.write({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def answer_error(self, request: Json, code: int, message: str) -> None:
        self.write({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})

    def fail(self, request: Json, error: MCPError) -> None:
        """Report that one request came to nothing, as a channel over HTTP does."""
        self._listener.request_failed(request["id"], error)

    def notify(self, method: str, params: Json) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, message: Any) -> None:
        """The server writes a line: bytes as they are, everything else as JSON."""
        self._listener.message_received(message if isinstance(message, bytes) else json.dumps(message).encode())

    def end(self, exit_code: int | None = None, signal: str | None = None, stderr: str = "") -> None:
        """The server's process ends; without exit code and signal it only closes its output."""
        if exit_code is not None or signal is not None:
            self._ending = Ending(exit_code, signal, stderr)
        self._listener.channel_ended()

    def end_slowly(self, **ending: Any) -> None:
        """The server's process closes its output; the process itself ends when the test lets it."""
        self.hold_closing()
        self.end(**ending)
        self.wait_until_closing()

    def die(self, exit_code: int | None = None, signal: str | None = None) -> None:
        """The server's process ends, which is not reported yet."""
        self._ending = Ending(exit_code, signal)

    def lock_out(self) -> None:
        """The server wants a login first."""
        self._ending = Ending(cause="wants a login", unauthorized=True)
        self._listener.channel_ended()

    def stop_reading(self, room: int = 1000) -> None:
        """From now on the pipe is full: `room` messages wait, and more are refused."""
        with self._changed:
            self._waiting = deque()
            self._room = room

    def resume_reading(self) -> None:
        with self._changed:
            waiting, self._waiting = self._waiting or deque(), None
        for item in waiting:
            self.send(item)

    def hold_closing(self) -> None:
        """From now on the server takes long to end."""
        self._may_close.clear()

    def let_close(self) -> None:
        self._may_close.set()

    def _matching(self, method: str) -> list[Json]:
        return [message for message in self._received if message.get("method") == method]


CAPABILITIES: Json = {"tools": {"listChanged": True}}


def handshake_answers() -> dict[str, Answer]:
    """What a server of the handshake era answers to the requests of a exchange's opening and maintenance."""
    return {
        "initialize": lambda request: {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "fake", "version": "1"},
        },
        "ping": lambda _: {},
    }


def stateless_answers() -> dict[str, Answer]:
    """The same for a server of the stateless era."""
    return {"server/discover": lambda _: {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}}


class FakeTransport(ChannelTransport):
    """Opens one `FakeChannel` after another. A test changes `answers` to say what the next ones answer."""

    network_transport = "pipe"

    def __init__(self, timeout: float = 30.0, answers: dict[str, Answer] | None = None) -> None:
        """`answers` are those of a server of the handshake era by default."""
        self.timeout = timeout
        self.tools: list[Json] = [{"name": "echo"}, {"name": "look", "annotations": {"readOnlyHint": True}}]
        self.answers: dict[str, Answer] = {
            **(handshake_answers() if answers is None else answers),
            "tools/list": lambda _: {"tools": self.tools},
        }
        self.start_errors: deque[Exception] = deque()
        """Raised by the next starts, one each."""
        self._changed = threading.Condition()
        """Owns `_channels`; notified when there is a new one."""
        self._channels: list[FakeChannel] = []

    def open(self, listener: ChannelListener, name: str) -> FakeChannel:
        if self.start_errors:
            # What was started until then has ended again.
            listener.channel_ended()
            raise self.start_errors.popleft()
        with self._changed:
            channel = FakeChannel(listener, len(self._channels) + 1, dict(self.answers))
            self._channels.append(channel)
            self._changed.notify_all()
        return channel

    @property
    def starts(self) -> int:
        return len(self._channels)

    def channel(self, number: int = 1) -> FakeChannel:
        """Wait for the nth start, counted from 1; return its channel."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._channels) >= number, PATIENCE):
                raise AssertionError(f"the server was started {len(self._channels)} times, not {number}")
            return self._channels[number - 1]

    # The four methods, which a supervised client does not use.

    def connect(self) -> bool:
        raise AssertionError("supervision opens channels instead")

    def disconnect(self) -> None:
        raise AssertionError("supervision closes channels instead")

    def send_request(self, method: str, params: Json | None = None) -> Json:
        raise AssertionError("supervision sends through channels instead")

    def is_connected(self) -> bool:
        raise AssertionError("supervision knows its own state")
