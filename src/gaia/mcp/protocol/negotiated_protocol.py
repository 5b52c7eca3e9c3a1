"""What client and server have agreed on, and what it adds to every message of their connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class NegotiatedProtocol(msgspec.Struct, frozen=True):
    """Immutable, shared between threads, compared by identity."""

    revision: str | None
    """The protocol revision; None as long as nothing is agreed."""
    request_meta: Mapping[str, Any] = {}
    """What every request carries in ``params._meta`` (2026-07-28, "Base protocol"); nothing in the handshake era."""
    server_may_ask: bool = True
    """Whether the server may send requests, which are answered. A stateless server is never written a response."""

    def with_log_level(self, level: str) -> NegotiatedProtocol:
        """The same, and each request asks for log messages of this level and above (2026-07-28, "Logging")."""
        return NegotiatedProtocol(self.revision, {**self.request_meta, _LOG_LEVEL: level}, self.server_may_ask)

    def add_meta(self, params: dict[str, Any] | None, progress_token: int | None) -> dict[str, Any] | None:
        """The params as they are sent. What a caller puts under the keys of the revision does not count."""
        if not self.request_meta and progress_token is None:
            return params
        params = dict(params or {})
        meta = {**(params.get("_meta") or {}), **self.request_meta}
        if progress_token is not None:
            meta["progressToken"] = progress_token
        params["_meta"] = meta
        return params


NOT_NEGOTIATED = NegotiatedProtocol(None)
"""Before anything is agreed: messages go out as they are."""
