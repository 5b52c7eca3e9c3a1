"""Requests that take several round trips (2026-07-28, "Multi Round-Trip Requests").

Instead of a result the server may ask for input. The client gathers it and sends the request again, with the answers
and with the server's opaque state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.errors import Delivery, InvalidResponse, MCPError

MAX_ROUNDS = 10
"""Sends of one request. No well-behaved server asks so often."""

_MAX_INPUTS = 16

_COMPLETE, _INPUT_REQUIRED = "complete", "input_required"
_METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
_ABSENT = object()


class InputRequest(msgspec.Struct, frozen=True):
    """One question of the server, in the form of a request of the handshake era."""

    method: str
    params: dict[str, Any]


class InputRequired(msgspec.Struct, frozen=True):
    requests: dict[str, InputRequest] | None
    """By the server's own keys; None if the server only wants the client to send the request again."""
    state: Any
    """The server's opaque state. It may be missing, which differs from null."""

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> InputRequired:
        """Read an ``input_required`` result. Raises `InvalidResponse` if it cannot be answered."""
        requests, state = result.get("inputRequests"), result.get("requestState", _ABSENT)
        if requests is None and state is _ABSENT:
            raise InvalidResponse("the server requires input, and does not say which")
        if requests is None:
            return cls(None, state)
        if not isinstance(requests, dict) or len(requests) > _MAX_INPUTS:
            raise InvalidResponse(f"inputRequests: expected an object with at most {_MAX_INPUTS} members")
        return cls({key: _request(key, request) for key, request in requests.items()}, state)

    def params(self, original: Mapping[str, Any] | None, answers: Mapping[str, Any]) -> dict[str, Any]:
        params = dict(original or {})
        if self.requests is not None:
            params["inputResponses"] = dict(answers)
        if self.state is not _ABSENT:
            params["requestState"] = self.state
        return params


def delivery_of(params: Mapping[str, Any] | None, error: MCPError) -> Delivery:
    """Whether the server may have acted on a request with these params, which may belong to a later round."""
    # These members exist only if the server has read an earlier round.
    if params is not None and ("requestState" in params or "inputResponses" in params):
        return "unknown"
    return error.delivery


def needs_input(result: Mapping[str, Any]) -> bool:
    return result.get("resultType") == _INPUT_REQUIRED


def check_result_type(method: str, result: Mapping[str, Any]) -> InvalidResponse | None:
    """The error for a wrong result type in the stateless era, or None; a missing type means "complete"."""
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
