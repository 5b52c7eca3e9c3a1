"""What a caller wants of a server: one request, and what is to be done around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.client.rpc.call import CallObserver

__all__ = ["ClientRequest", "OnProgress"]

OnProgress = Callable[[float, float | None, str | None], object]
"""``on_progress(progress, total, message)``; `total` and `message` are None when the server does not give them."""


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
