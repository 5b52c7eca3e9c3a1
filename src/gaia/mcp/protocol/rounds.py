"""Requests that take several round trips (2026-07-28, "Multi Round-Trip Requests").

In place of a result the server may say what it still needs. The client gathers that and sends the request again, with
the answers and with the server's state, which is the server's alone: it is echoed, and never looked into.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.errors import Delivery, InvalidResponse, MCPError

MAX_ROUNDS = 10
"""How often one request is sent at most. No well-behaved server asks so often."""

_MAX_INPUTS = 16
"""Of one round."""

_COMPLETE, _INPUT_REQUIRED = "complete", "input_required"
_METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
_ABSENT = object()


class InputRequest(msgspec.Struct, frozen=True):
    """One thing that the server needs, in the form of a request that it would have sent in the handshake era."""

    method: str
    params: dict[str, Any]


class InputRequired(msgspec.Struct, frozen=True):
    """What a server needs before it can give a result."""

    requests: dict[str, InputRequest] | None
    """By the server's own keys; None if it only wants to be asked again."""
    state: Any
    """Opaque. May be missing, which is not the same as null."""

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> InputRequired:
        """Raises `InvalidResponse` for what cannot be answered."""
        requests, state = result.get("inputRequests"), result.get("requestState", _ABSENT)
        if requests is None and state is _ABSENT:
            raise InvalidResponse("the server requires input, and does not say which")
        if requests is None:
            return cls(None, state)
        if not isinstance(requests, dict) or len(requests) > _MAX_INPUTS:
            raise InvalidResponse(f"inputRequests: expected an object with at most {_MAX_INPUTS} members")
        return cls({key: _request(key, request) for key, request in requests.items()}, state)

    def params(self, original: Mapping[str, Any] | None, answers: Mapping[str, Any]) -> dict[str, Any]:
        """The params of the next round: the `original` ones, the answers by the same keys, and the state if any."""
        params = dict(original or {})
        if self.requests is not None:
            params["inputResponses"] = dict(answers)
        if self.state is not _ABSENT:
            params["requestState"] = self.state
        return params


def delivery_of(params: Mapping[str, Any] | None, error: MCPError) -> Delivery:
    """Whether the server may have acted on a request with these params, which may be those of a further round."""
    # Only a server that has read the round before can have caused one of these members.
    if params is not None and ("requestState" in params or "inputResponses" in params):
        return "unknown"
    return error.delivery


def needs_input(result: Mapping[str, Any]) -> bool:
    """Whether this is no result yet; for servers of the stateless era only."""
    return result.get("resultType") == _INPUT_REQUIRED


def check_result_type(method: str, result: Mapping[str, Any]) -> InvalidResponse | None:
    """What is wrong with the type of a result of the stateless era; a missing one means "complete"."""
    kind = result.get("resultType", _COMPLETE)
    if kind == _COMPLETE or (kind == _INPUT_REQUIRED and method in _METHODS):
        return None
    return InvalidResponse(f"the result of {method} is of the type {str(kind)[:40]!r}, which means nothing there")


def _request(key: str, request: Any) -> InputRequest:
    method = request.get("method") if isinstance(request, dict) else None
    params = request.get("params") if isinstance(request, dict) else None
    if not isinstance(method, str) or not isinstance(params, dict | None):
        raise InvalidResponse(f"inputRequests.{key[:40]}: expected a method and params")
    return InputRequest(method, params or {})
