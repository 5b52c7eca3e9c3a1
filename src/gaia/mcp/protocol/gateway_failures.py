"""Calls that failed between a gateway and its server: how the gateway tells its client, and what the client reads.

A client repeats a request if it takes its error for a lost connection, as durable runtimes do with -32000, the
``CONNECTION_CLOSED`` of the official SDKs. So the codes are outside of what JSON-RPC reserves (-32768 to -32000), and a
tool call that the server may have acted on has no error at all but a result that says so: nothing repeats a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaia.mcp.errors import Delivery, MCPError, error_of

GATEWAY_NAME = "gaia-mcp-gateway"
"""How a gateway calls itself in `serverInfo`."""

NOT_SENT = -31001
"""The server has not received the request: it can be repeated."""

OUTCOME_UNKNOWN = -31002
"""The server may have acted on the request, which is no tool call."""

FAILURE_KEY = "gaia.mcp/failure"
"""The member of `_meta` with the details of a failed tool call."""

_AUDIT = "audit"
"""The one word of a gateway that has no class in `gaia.mcp.errors`."""


def is_gateway(server_info: Mapping[str, Any]) -> bool:
    """Whether a server is a gateway. Another server may only pass on what a gateway behind it has said."""
    return server_info.get("name") == GATEWAY_NAME


def details_of(server: str, error: MCPError, delivery: Delivery) -> dict[str, str]:
    """What `data` of an error, or `_meta` of a result, says of the failure."""
    return {"server": server, "errorType": error.error_type, "delivery": delivery}


def failed_result(text: str, details: Mapping[str, str]) -> dict[str, Any]:
    """The result of a tool call that the server may have acted on."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {FAILURE_KEY: details}}


def failure_of(code: object, message: str, data: object) -> MCPError | None:
    """The failure that a JSON-RPC error of a gateway tells; None if it is another error."""
    return _failure(message, data) if code in (NOT_SENT, OUTCOME_UNKNOWN) else None


def failure_in(result: Mapping[str, Any]) -> MCPError | None:
    """The failure that a result of a gateway tells; None if it is another result."""
    meta, content = result.get("_meta"), result.get("content")
    if not isinstance(meta, dict) or not isinstance(content, list) or not content or not isinstance(content[0], dict):
        return None
    text = content[0].get("text")
    return _failure(text, meta.get(FAILURE_KEY)) if isinstance(text, str) else None


def _failure(message: str, details: object) -> MCPError | None:
    if not isinstance(details, dict):
        return None
    word = details.get("errorType")
    if not isinstance(word, str):
        return None
    # This client is connected: `NotConnected` would tell its application of a misuse.
    error = error_of("server_unavailable" if word == "not_connected" else word, message)
    if type(error) is MCPError and word != _AUDIT:
        # It is no gateway. Metrics have error types as labels, so servers must not invent any.
        return None
    error.delivery = "not_sent" if details.get("delivery") == "not_sent" else "unknown"
    return error
