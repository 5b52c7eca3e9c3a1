"""The steps of an exchange with a server, which is written as a generator.

The generator yields `Send` and is sent the result object of the answer, or has an `MCPError` thrown into it; it yields
`Notify` or `SetProtocolVersion` and is sent None. The code that drives it decides how bytes travel and how time passes:
the exchange runner of a supervised server by events, `drive` in the caller's thread, a test by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.protocol.messages import value_size

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


T = TypeVar("T")

_MAX_PAGES = 10_000
_MAX_ITEMS = 100_000
_MAX_BYTES = 64 * 1024 * 1024
"""Pages, items, and bytes in memory (`value_size`). No well-behaved server has more. A list that never ends must not
keep the client for ever, or fill its memory."""


class Send(msgspec.Struct, frozen=True):
    """Send this request; go on with its result."""

    method: str
    params: dict[str, Any] | None = None
    timeout: float | None = None
    """Seconds for this request alone; None leaves it to the driver."""
    target: str | None = None
    """The name of the prompt that is asked for, which traces are told."""


class Notify(msgspec.Struct, frozen=True):
    """Send this notification; go on at once."""

    method: str
    params: dict[str, Any] | None = None


class SetProtocolVersion(msgspec.Struct, frozen=True):
    """From now on every message of the connection has what this protocol asks for; go on at once."""

    protocol: NegotiatedProtocol


Step = Send | Notify | SetProtocolVersion

Exchange = Generator[Step, Any, T]


def paginate(method: str, key: str) -> Exchange[list[Any]]:
    """All items of a paginated list (specification, "Pagination").

    The end is a missing or null `nextCursor`; an empty string is a cursor like any other. A cursor that comes twice
    would loop for ever and is an `InvalidResponse`.
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
        # The last page needs no count: one message has a limit of its own.
        size += value_size(page) + value_size(cursor)
        if size > _MAX_BYTES:
            raise InvalidResponse(f"the pages of {method} take more than {_MAX_BYTES} bytes")
        if cursor in seen:
            # The cursor itself is left out: it may be anything that the server knows.
            raise InvalidResponse(f"the answer to {method} repeats a cursor")
        seen.add(cursor)
    raise InvalidResponse(f"{method} has more than {_MAX_PAGES} pages")


def drive(
    exchange: Exchange[T],
    request: Callable[[Send], dict[str, Any]],
    tell: Callable[[Notify | SetProtocolVersion], None] = lambda _: None,
) -> T:
    """Run an exchange to its end in this thread. `request` returns a result object or raises an `MCPError`.

    `tell` is given the steps that have no result. Listings have none of them.
    """
    try:
        step = next(exchange)
        while True:
            if not isinstance(step, Send):
                tell(step)
                step = exchange.send(None)
                continue
            try:
                result = request(step)
            except MCPError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(result)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome
