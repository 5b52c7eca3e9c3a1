"""What a connection needs of a transport, and what the transport's threads call."""

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


class Errand(Protocol):
    """The exchange with the server for one request, left to the thread of the caller that waits for the answer."""

    def run(self) -> None:
        """Send the request and receive what answers it, at most until the request's deadline. On the caller's thread.

        No code of the application runs meanwhile. Raises only what a signal handler raises.
        """

    def ended(self) -> None:
        """The request has ended: `run` must return soon. For any thread."""

    def abandon(self) -> None:
        """It does not go on: an exception came before, in or after `run`. On the caller's thread, and harmless."""


class Outgoing(Protocol):
    """Something to be written. The writer asks `begin_write` right before its first byte."""

    @property
    def frame(self) -> bytes: ...

    @property
    def id(self) -> int | None:
        """Of a request; None for what is not answered."""

    @property
    def method(self) -> str | None:
        """Of a request or a notification; None for an answer."""

    @property
    def params(self) -> Mapping[str, Any] | None: ...

    @property
    def bound(self) -> bool:
        """Whether it is the supervisor's own, and not a request of the application."""

    @property
    def loop(self) -> LoopWork | None:
        """The event loop whose task waits for the answer; None: a thread does."""

    @property
    def ended(self) -> bool:
        """Whether no answer is needed any more: the request was answered or given up."""

    @property
    def deadline(self) -> float:
        """A reading of the clock, after which no answer is needed any more. It may move later."""

    def leave(self, errand: Errand) -> bool:
        """Have the calling thread run `errand` right after `Channel.send`; False if it does not wait for the answer."""

    def begin_write(self) -> bool: ...

    def undo_write(self) -> None: ...


class Frame(msgspec.Struct, frozen=True):
    """Bytes that are never taken back: notifications, and answers to the server's requests."""

    frame: bytes
    method: str | None = None
    params: Mapping[str, Any] | None = None
    id: ClassVar[None] = None
    bound: ClassVar[bool] = True
    loop: ClassVar[None] = None
    ended: ClassVar[bool] = False
    deadline: ClassVar[float] = math.inf

    def leave(self, errand: Errand) -> bool:  # noqa: ARG002 - no thread waits for it
        return False

    def begin_write(self) -> bool:
        return True

    def undo_write(self) -> None:
        pass


class Ending(msgspec.Struct, frozen=True):
    """How a server ended. `exit_code` and `signal` are None where they do not apply or could not be learnt."""

    exit_code: int | None = None
    signal: str | None = None
    stderr_tail: str = ""
    used_up: tuple[str, ...] = ()
    """Keys of its sandbox whose limits its process had reached."""
    cause: str | None = None
    """For servers that are not processes of ours: what happened, as the end of a sentence about the server."""
    renewable: bool = False
    """The server has only forgotten the session: it can be opened again at once."""

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
    """A live byte channel to one server. Thread-safe; only `ending`, `stop_writing` and `close` wait."""

    @property
    def pid(self) -> int | None: ...

    def send(self, item: Outgoing, /) -> bool:
        """Write `item` now or as soon as the server reads again. False if too much is already waiting.

        Once `stop_writing` has returned True, or `close` has returned, `item` is not even asked whether it may be
        written.
        """

    def cancel(self, notice: Frame) -> None:
        """The answer to a request is not needed any more. `notice` is the notification with its ``requestId``.

        A channel that gives each request a stream of its own closes that, and sends `notice` only in the eras in which
        closing a stream means nothing.
        """

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        """Messages sent from now on follow this protocol, for channels in which more than their bytes depends on it."""

    def redact(self, text: str) -> str:
        """`text` with this server's secrets masked."""

    def ending(self, wait: float) -> Ending | None:
        """How the server ended, waiting at most `wait` seconds for it to do so; None if it is still running."""

    def memory(self) -> int | None:
        """How many bytes of main memory the server's processes have; None if it is no process here."""

    def stop_writing(self) -> bool:
        """Write nothing any more. True if that is certain before `close`, which does it too; waits for it a moment."""

    def close(self, grace: float) -> Ending:
        """End the server and everything it started; `grace` is how many seconds it gets to leave by itself."""

    def after_fork(self) -> None:
        """In a forked child: close our copies of the descriptors; the server belongs to the parent."""


class ChannelListener(Protocol):
    """What the threads of a channel call. Implementations never block and never raise.

    Several threads may call at once: over HTTP each thread that makes an exchange hands over what answers it.
    """

    def message_received(self, line: bytes | OversizedLine, call_id: int | None = None) -> None:
        """`call_id` is that of the request on whose own stream the message came, if it did so."""

    def request_failed(self, call_id: int, error: MCPError) -> None:
        """One request failed, and the channel goes on. `undo_write` comes first if the request was not sent."""

    def channel_ended(self) -> None:
        """The server's output ended or its process exited; may be called more than once."""

    def awaits_answers(self) -> bool:
        """Whether a request was sent whose answer may still come, one that stays open not counted."""
