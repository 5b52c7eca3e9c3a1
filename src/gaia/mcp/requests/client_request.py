"""What a caller wants of a server: one request, and the options of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.request_spans import Observation
from gaia.runtime.clock import require_seconds

OnProgress = Callable[[float, float | None, str | None], object]
"""``on_progress(progress, total, message)``; `total` and `message` are None when the server does not give them."""


class CallOptions(msgspec.Struct, frozen=True):
    """How a caller wants a call to be made. Durations in seconds; None leaves it to the client.

    Raises ValueError for a duration that is none (`require_seconds`).
    """

    timeout: float | None = None
    """For waiting, writing and the answer together; None is the session's own."""
    on_progress: OnProgress | None = None
    reset_timeout_on_progress: bool | None = None
    """Whether each progress gives the call its whole timeout again, up to `max_timeout`."""
    max_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            require_seconds("timeout", self.timeout)
        if self.max_timeout is not None:
            require_seconds("max_timeout", self.max_timeout)


class ResultCheck(Protocol):
    """Whether a result is what the server has promised."""

    @property
    def fails_call(self) -> bool:
        """Whether the call fails of a result that is not. Otherwise that is only logged."""

    def problem(self, result: Mapping[str, Any], /) -> MCPError | None:
        """What the call fails with. May take seconds."""

    def submit(self, task: Callable[[], object], /) -> None:
        """Run a task, such as `problem`, where nothing else of the client waits for it. Raises `PoolExhausted`."""

    def note(self, result: Mapping[str, Any], /) -> None:
        """Have the log told soon what is wrong with the result. Never blocks."""

    def note_bytes(self, result: bytes, /) -> None:
        """The same for a result that is still JSON."""


class ClientRequest(msgspec.Struct, frozen=True):
    """Immutable. The hooks run on the caller's thread, or where the callbacks of its future run."""

    method: str
    params: dict[str, Any] | None = None
    options: CallOptions = CallOptions()
    tool: str | None = None
    """The server's own name of the tool, if this is a tool call."""
    repeatable: bool = False
    """Whether writing it twice does no harm."""
    max_timeout: float | None = None
    """Seconds up to which progress extends the call, after the options and the client's settings; None: it does not."""
    observation: Observation | None = None
    """Told what becomes of the request, and its end; None if the process records nothing."""
    check: ResultCheck | None = None
    """The check of its result, if there is something to check."""
