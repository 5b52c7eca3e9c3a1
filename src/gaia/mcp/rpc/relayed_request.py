"""`RelayedRequest`: a call for a client of a gateway. Its result stays the bytes that the server sent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Protocol

import msgspec
import orjson

from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY, NO_FACTS, ResultFacts, facts_of, failure_in, result_bytes
from gaia.mcp.protocol.messages import Refusal, encode_request
from gaia.mcp.protocol.rounds import check_result_type
from gaia.mcp.rpc.call import Call

OnAnswer = Callable[[dict[str, Any] | None, Refusal | None], object]
"""Told the client's result, or why there is none. For any thread."""

_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_FAILURE_KEY = FAILURE_KEY.encode()
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class RequestOwner(Protocol):
    """The gateway's side of such a call. The methods are for any thread, quick, and never raise."""

    @property
    def client_key(self) -> Hashable | None:
        """Equal for calls of the same client; None if it is not known whether they are."""

    @property
    def is_away(self) -> bool:
        """Whether the call waits for a client that has not come back for long."""

    def give_way(self) -> None:
        """End the call, whose client is away, for a request of the server that would be another client's then."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client has declared; a server of the stateless era is told of it."""

    @property
    def log_level(self) -> str | None:
        """What a server of the stateless era is asked to log for this call."""

    def logged(self, params: dict[str, Any]) -> None:
        """The server has sent a log message that belongs to the call."""

    def refusal(self, tool: str) -> MCPError | None:
        """Why the client may not call a tool by what the server says of it now, while the call has waited for it."""

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        """Have the client answer a request of the server; returns a function that withdraws it, for any thread."""


class RelayedRequest(Call, eq=False, kw_only=True):
    """See `Call`. `params` may have members that are JSON already (`orjson.Fragment`)."""

    owner: RequestOwner
    raw: bytes = b"{}"
    """The result as JSON, once the call has ended without an error."""
    facts: ResultFacts = NO_FACTS
    """What the result says of itself."""
    is_relayed: ClassVar[bool] = True

    def refusal(self, tool: str, /) -> MCPError | None:
        return self.owner.refusal(tool)

    # The signature of `Call.finish`; the result has been decoded because its line had to be repaired.
    def finish(self, result: dict[str, Any] | None = None, error: MCPError | None = None) -> bool:
        if result is not None:
            self.raw = result_bytes(result)
            self.facts = facts_of(self.raw)
        return Call.finish(self, None, error)

    def answered(self, result: bytes, *, is_stateless: bool) -> None:
        """For the thread that has taken the call out of its connection's table."""
        self.raw = result
        self.facts = facts = facts_of(result)
        if is_stateless and facts is not NO_FACTS:
            problem = check_result_type(self.method, {"resultType": facts.result_type})
            if problem is not None:
                Call.finish(self, error=problem)
                return
        failure = None
        if facts.is_error is True and _FAILURE_KEY in result:
            with contextlib.suppress(ValueError):
                failure = failure_in(orjson.loads(result))
        Call.finish(self, error=failure)

    def take(self) -> bytes:
        """The result, once. What still knows the call keeps no part of its text."""
        result, self.raw, self.frame = self.raw, b"", b""
        return result

    def _encode(self) -> bytes:
        negotiated = self.negotiated
        token = None if self.on_progress is None and self.max_timeout is None else self.id
        if not negotiated.request_meta and token is None:
            return encode_request(self.id, self.method, self.params)
        if negotiated.request_meta:
            negotiated = _for_client(negotiated, self.owner)
        return encode_request(self.id, self.method, negotiated.add_meta(self.params, token))


def _for_client(negotiated: NegotiatedProtocol, owner: RequestOwner) -> NegotiatedProtocol:
    """What a server is told with a request is what the client can do, not what the gateway can."""
    capabilities = {name: {} if name == "roots" else details for name, details in owner.capabilities.items()}
    meta = {**negotiated.request_meta, _CAPABILITIES: capabilities}
    if owner.log_level is not None:
        meta[_LOG_LEVEL] = owner.log_level
    return msgspec.structs.replace(negotiated, request_meta=meta)
