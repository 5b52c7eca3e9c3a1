"""What a connection needs from a transport, and what it tells the transport's threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from gaia.mcp.client.protocol.framing import OversizedLine
from gaia.mcp.client.protocol.negotiated_protocol import NegotiatedProtocol
from gaia.mcp.errors import MCPError

__all__ = ["Channel", "ChannelListener", "Ending", "Frame", "Outgoing"]


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
    def ended(self) -> bool:
        """Whether nobody waits for an answer, because it has come, for example."""

    def begin_write(self) -> bool: ...

    def undo_write(self) -> None: ...


class Frame(msgspec.Struct, frozen=True):
    """Bytes that are written whatever happens: notifications, and answers to the server's requests."""

    frame: bytes
    method: str | None = None
    params: Mapping[str, Any] | None = None

    @property
    def id(self) -> None:
        return None

    @property
    def ended(self) -> bool:
        return False

    def begin_write(self) -> bool:
        return True

    def undo_write(self) -> None:
        return None


class Ending(msgspec.Struct, frozen=True):
    """How a server ended. `exit_code` and `signal` are None where they do not apply or could not be learnt."""

    exit_code: int | None = None
    signal: str | None = None
    stderr_tail: str = ""
    cause: str | None = None
    """For servers that are not processes of ours: what happened, as the end of a sentence about the server."""
    renewable: bool = False
    """Nothing is wrong with the server: a session that it forgot is opened anew, at once."""

    unauthorized: bool = False
    """The server lets nobody in without a login, and there is none that it takes."""

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
        return f"{cause}; it last wrote on stderr:\n{self.stderr_tail}" if self.stderr_tail else cause


class Channel(Protocol):
    """A live byte channel to one server. Thread-safe; only `ending` and `close` wait."""

    @property
    def pid(self) -> int | None: ...

    def send(self, item: Outgoing, /) -> bool:
        """Write `item` now or as soon as the server reads again. False if too much is already waiting.

        Once `close` has returned, `item` is not even asked whether it may be written.
        """

    def cancel(self, notice: Frame) -> None:
        """Nobody waits for the answer to a request any more. `notice` is the notification with its ``requestId``.

        A channel that gives each request a stream of its own closes that, and sends `notice` only in the eras in which
        closing a stream means nothing.
        """

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        """Messages sent from now on follow this protocol. Channels that carry bytes only need not care."""

    def redact(self, text: str) -> str:
        """`text` with this server's secrets masked."""

    def ending(self, wait: float) -> Ending | None:
        """How the server ended, waiting at most `wait` seconds for it to do so; None if it is still running."""

    def close(self, grace: float) -> Ending:
        """End the server and everything it started; `grace` is how many seconds it gets to leave by itself."""

    def after_fork(self) -> None:
        """Let go without touching the server: this process is a fork, and the server belongs to its parent."""


class ChannelListener(Protocol):
    """What the threads of a channel call. Implementations never block and never raise."""

    def message_received(self, line: bytes | OversizedLine) -> None: ...

    def request_failed(self, call_id: int, error: MCPError) -> None:
        """One request came to nothing, and the channel goes on. `undo_write` comes first if it was not sent."""

    def channel_ended(self) -> None:
        """The server's output ended or its process exited; may be called more than once."""
