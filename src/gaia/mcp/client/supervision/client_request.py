"""What a caller wants of a server: one request, and what is to be done around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.mcp.client.rpc.call import CallObserver
from gaia.mcp.errors import MCPError

__all__ = ["CallOptions", "ClientRequest", "OnProgress"]

OnProgress = Callable[[float, float | None, str | None], object]
"""``on_progress(progress, total, message)``; `total` and `message` are None when the server does not give them."""


class CallOptions(msgspec.Struct, frozen=True):
    """How a caller wants a call to be made. Durations in seconds; None leaves it to the client."""

    timeout: float | None = None
    on_progress: OnProgress | None = None
    reset_timeout_on_progress: bool | None = None
    max_timeout: float | None = None


class ClientRequest(msgspec.Struct, frozen=True):
    """Immutable. The hooks run on the caller's thread, or where the callbacks of its future run."""

    method: str
    params: dict[str, Any] | None = None
    timeout: float | None = None
    """Seconds for waiting, writing and the answer together; None is the session's own."""
    repeatable: bool = False
    """Whether writing it twice does no harm."""
    on_progress: OnProgress | None = None
    observer: CallObserver | None = None
    longest: float | None = None
    """Progress sets the timeout back, until so many seconds after the beginning; None: it does not."""
    check: Callable[[Mapping[str, Any]], MCPError | None] | None = None
    """What is wrong with a result, if the call is to fail of it. May take long, and may run on a callback thread."""
