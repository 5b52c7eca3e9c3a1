"""The interface between connections and transports: messages to send, and the reports of a transport's threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.framing import OversizedLine

if TYPE_CHECKING:
    from gaia.runtime.loop_work import LoopWork


class CallerWork(Protocol):
    """The I/O of one request, done by the thread of the caller that waits for the answer."""

    def run(self) -> None:
        """Send the request and receive its answer, at most until the request's deadline. On the caller's thread.

        It runs no code of the application and does not raise; a signal handler may still raise in this thread.
        """

    def ended(self) -> None:
        """The request has ended: `run` must return soon. For any thread."""

    def abandon(self) -> None:
        """Give up after an exception before, in or after `run`. On the caller's thread. May be called at any time."""


class Outgoing(Protocol):
    """A message to write. The writer calls `begin_write` right before its first byte."""

    @property
    def frame(self) -> bytes: ...

    @property
    def id(self) -> int | None:
        """The id of a request; None for messages that are not answered."""

    @property
    def method(self) -> str | None:
        """The method of a request or a notification; None for a response."""

    @property
    def params(self) -> Mapping[str, Any] | None: ...

    @property
    def bound(self) -> bool:
        """Whether it belongs to the supervisor, not to a request of the application."""

    @property
    def loop(self) -> LoopWork | None:
        """The event loop whose task waits for the answer; None: a thread waits."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Headers for this item alone, over HTTP; they override the server's. They may be secret."""

    @property
    def ended(self) -> bool:
        """Whether the answer is not needed any more: the request was answered or given up."""

    @property
    def deadline(self) -> float:
        """A reading of the clock. The answer is not needed after it. Progress may move it to later."""

    @property
    def last_deadline(self) -> float:
        """The latest reading to which progress may move the deadline."""

    @property
    def repeated(self) -> bool:
        """Whether it was sent before, and its answer was lost."""

    def run_in_caller(self, work: CallerWork) -> bool:
        """Have the calling thread run `work` right after `Channel.send`. False if it does not wait for the answer."""

    def begin_write(self) -> bool:
        """False if it must not be written any more. A writer does not ask for an item whose deadline has passed."""

    def undo_write(self) -> None: ...


class Frame(msgspec.Struct, frozen=True):
    """Bytes that are never taken back: notifications, and responses to the server's requests."""

    frame: bytes
    method: str | None = None
    params: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    id: ClassVar[None] = None
    bound: ClassVar[bool] = True
    loop: ClassVar[None] = None
    ended: ClassVar[bool] = False
    deadline: ClassVar[float] = math.inf
    last_deadline: ClassVar[float] = math.inf
    repeated: ClassVar[bool] = False

    def run_in_caller(self, work: CallerWork) -> bool:  # noqa: ARG002 - no thread waits for it
        return False

    def begin_write(self) -> bool:
        return True

    def undo_write(self) -> None:
        pass


class Ending(msgspec.Struct, frozen=True):
    """How a server ended. `exit_code` and `signal` are None if they do not apply or are unknown."""

    exit_code: int | None = None
    signal: str | None = None
    stderr_tail: str = ""
    used_up: tuple[str, ...] = ()
    """Keys of its sandbox whose limits its process has reached."""
    cause: str | None = None
    """For servers without a local process: the end of a sentence about the server that says why it ended."""
    renewable: bool = False
    """The server has only forgotten the session, which can be opened again at once."""
    unauthorized: bool = False
    """The server requires a login, and there is none that it accepts."""

    @property
    def clean(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        if self.signal is not None:
            cause = f"was killed by {self.signal}"
        elif self.exit_code is not None:
            cause = f"exited with code {self.exit_code}"
        elif self.cause is not None:
            cause = self.cause
        else:
            cause = "closed its output"
        if self.used_up:
            cause = f"{cause}; it had used up what its sandbox allows: {', '.join(self.used_up)}"
        return f"{cause}; it last wrote on stderr:\n{self.stderr_tail}" if self.stderr_tail else cause


class Channel(Protocol):
    """An open channel to one server. Thread-safe. Only `ending`, `stop_writing` and `close` wait."""

    @property
    def pid(self) -> int | None: ...

    def send(self, item: Outgoing, /) -> bool:
        """Write `item` now, or as soon as the server reads again. False if too much is already waiting.

        After `stop_writing` has returned True, or `close` has returned, the channel calls no item's `begin_write`.
        """

    def cancel(self, notice: Frame) -> None:
        """Give up the answer to a request. `notice` is the notification with its ``requestId``.

        A channel with one stream for each request closes that stream. It sends `notice` only in eras in which closing a
        stream has no meaning.
        """

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        """Let further messages follow this protocol. For channels that send more than the bytes of a message."""

    def redact(self, text: str) -> str: ...

    def ending(self, wait: float) -> Ending | None:
        """How the server ended, waiting at most `wait` seconds for its end; None if it is still running."""

    def memory(self) -> int | None:
        """Bytes of main memory that the server's processes use; None if it has no process here."""

    def stop_writing(self) -> bool:
        """Write nothing any more. True if that is certain before `close`. Waits a moment for a write in progress."""

    def close(self, grace: float) -> Ending:
        """End the server and all processes that it started; it gets `grace` seconds to exit by itself."""

    def after_fork(self) -> None:
        """In a forked child: close the child's copies of the descriptors. The server belongs to the parent."""


class ChannelListener(Protocol):
    """The reports of a channel's threads, several at once. Implementations never block and never raise."""

    def message_received(self, line: bytes | OversizedLine, call_id: int | None = None) -> None:
        """`call_id` is the id of the request on whose own stream the message came, if there was such a stream."""

    def request_failed(self, call_id: int, error: MCPError) -> None:
        """One request failed, and the channel goes on. If it was not sent, the channel calls `undo_write` first."""

    def channel_ended(self) -> None:
        """The server's output has ended, or its process has exited. May be called more than once."""

    def awaits_answers(self) -> bool:
        """Whether an answer may still come to a request that was sent. Standing requests do not count."""
