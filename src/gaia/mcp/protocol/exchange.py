"""The steps of an exchange with a server, written as a generator.

The generator yields `Send` and receives the result object of the answer, or an `MCPError` is thrown into it. It yields
`Notify` or `SetProtocolVersion` and receives None. Its driver decides how bytes travel and how time passes: the
exchange runner of a supervised server by events, `drive` in the caller's thread, a test by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.protocol.messages import value_size

META = "io.modelcontextprotocol/"


class NegotiatedProtocol(msgspec.Struct, frozen=True):
    """The revision and the metadata on which client and server have agreed. Immutable; compared by identity."""

    revision: str | None
    """The protocol revision; None before an agreement."""
    request_meta: Mapping[str, Any] = {}
    """The members of ``params._meta`` in every request (2026-07-28, "Base protocol"); empty in the handshake era."""
    server_may_ask: bool = True
    """Whether the client answers requests of the server. It never writes a response to a stateless server."""

    def with_log_level(self, level: str) -> NegotiatedProtocol:
        """A copy whose requests ask for log messages of this level and above (2026-07-28, "Logging")."""
        return NegotiatedProtocol(self.revision, {**self.request_meta, f"{META}logLevel": level}, self.server_may_ask)

    def add_meta(self, params: dict[str, Any] | None, progress_token: int | None) -> dict[str, Any] | None:
        """The params as sent. The revision's keys override a caller's."""
        if not self.request_meta and progress_token is None:
            return params
        params = dict(params or {})
        meta = {**(params.get("_meta") or {}), **self.request_meta}
        if progress_token is not None:
            meta["progressToken"] = progress_token
        params["_meta"] = meta
        return params


NOT_NEGOTIATED = NegotiatedProtocol(None)
"""Before an agreement: messages are sent without metadata."""


T = TypeVar("T")

_MAX_PAGES = 10_000
_MAX_ITEMS = 100_000
_MAX_BYTES = 64 * 1024 * 1024
"""Limits of pages, items, and bytes in memory (`value_size`), above any well-behaved server's. An endless list must not
occupy the client for ever, nor fill its memory."""


class Send(msgspec.Struct, frozen=True):
    """Send this request; continue with its result."""

    method: str
    params: dict[str, Any] | None = None
    timeout: float | None = None
    """Seconds for this request alone; None means the driver's limit."""
    target: str | None = None
    """The name of the requested prompt, for traces."""


class Notify(msgspec.Struct, frozen=True):
    """Send this notification; continue at once."""

    method: str
    params: dict[str, Any] | None = None


class SetProtocolVersion(msgspec.Struct, frozen=True):
    """Apply this protocol to every further message of the connection; continue at once."""

    protocol: NegotiatedProtocol


Step = Send | Notify | SetProtocolVersion

Exchange = Generator[Step, Any, T]


def paginate(method: str, key: str) -> Exchange[list[Any]]:
    """All items of a paginated list (specification, "Pagination").

    A missing or null `nextCursor` ends the list; an empty string is an ordinary cursor. A repeated cursor would loop
    for ever, so it raises `InvalidResponse`.
    """
    items: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(_MAX_PAGES):
        result = yield Send(method, None if cursor is None else {"cursor": cursor})
        page = result.get(key)
        if not isinstance(page, list):
            raise InvalidResponse(f"the answer to {method} has no list {key!r}")
        items.extend(page)
        if len(items) > _MAX_ITEMS:
            raise InvalidResponse(f"{method} has more than {_MAX_ITEMS} items")
        cursor = result.get("nextCursor")
        if cursor is None:
            return items
        if not isinstance(cursor, str):
            raise InvalidResponse(f"the answer to {method} has a cursor that is not a string")
        # The last page is not counted: one message has its own limit.
        size += value_size(page) + value_size(cursor)
        if size > _MAX_BYTES:
            raise InvalidResponse(f"the pages of {method} take more than {_MAX_BYTES} bytes")
        if cursor in seen:
            # The message omits the cursor, which may contain any data of the server.
            raise InvalidResponse(f"the answer to {method} repeats a cursor")
        seen.add(cursor)
    raise InvalidResponse(f"{method} has more than {_MAX_PAGES} pages")


def drive(
    exchange: Exchange[T],
    request: Callable[[Send], dict[str, Any]],
    tell: Callable[[Notify | SetProtocolVersion], None] = lambda _: None,
) -> T:
    """Run an exchange in this thread. `request` returns a result or raises `MCPError`; `tell` gets the other steps."""
    result: dict[str, Any] | MCPError | None = None
    try:
        while True:
            step = advance(exchange, result)
            if isinstance(step, Send):
                try:
                    result = request(step)
                except MCPError as error:
                    result = error
            else:
                result = None
                tell(step)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome


def advance(exchange: Exchange[Any], result: dict[str, Any] | MCPError | None) -> Step:
    """The next step, after the result of the last one; None before the first. Raises StopIteration at the end."""
    return exchange.throw(result) if isinstance(result, MCPError) else exchange.send(result)
