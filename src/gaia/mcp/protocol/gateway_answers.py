"""Answers that pass through a gateway, and calls that failed between the gateway and its server.

Only the envelope of an answer is decoded; the result stays bytes.

Some clients, such as durable runtimes, repeat a request after an error that looks like a lost connection, such as
-32000, the ``CONNECTION_CLOSED`` of the official SDKs. So a gateway's own error codes are outside the range that
JSON-RPC reserves (-32768 to -32000). A gateway reports a tool call that the server may have acted on with a result, not
an error, because clients do not repeat after a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.errors import Delivery, JsonRpcError, MCPError, answered_error, error_of
from gaia.mcp.protocol.messages import INVALID_PARAMS


class _Envelope(msgspec.Struct):
    """A successful response. Other messages do not fit and are decoded in the ordinary way."""

    jsonrpc: str
    id: int
    result: msgspec.Raw
    error: None = None
    method: None = None


class ResultFacts(msgspec.Struct, frozen=True):
    # Any: a server may put any value there.
    given_type: Any = msgspec.field(default=msgspec.UNSET, name="resultType")
    is_error: Any = msgspec.field(default=False, name="isError")

    @property
    def has_type(self) -> bool:
        return self.given_type is not msgspec.UNSET

    @property
    def result_type(self) -> Any:
        return self.given_type if self.has_type else "complete"


NO_FACTS = ResultFacts()
_UNKNOWN_FACTS = ResultFacts(given_type="complete")

_LONG = 8 * 1024
"""Bytes."""

_envelope = msgspec.json.Decoder(_Envelope)
_facts = msgspec.json.Decoder(ResultFacts)


def decode_answer(line: bytes) -> tuple[int, bytes] | None:
    """The id and the result, as JSON without line ends, of a successful answer with an object; None for other lines."""
    try:
        envelope = _envelope.decode(line)
        if not line.isascii():
            # The decoder does not check the characters of a raw value.
            line.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    result = bytes(envelope.result)
    if envelope.jsonrpc != "2.0" or result[:1] != b"{":
        return None
    if b"\n" in result or b"\r" in result:
        # Over HTTP a message may have many lines. JSON does not allow line ends within strings.
        result = msgspec.json.format(result, indent=-1)
    return envelope.id, result


def facts_of(result: bytes) -> ResultFacts:
    # Decoding a long result is faster than searching it twice. Names of members may contain escapes.
    if len(result) < _LONG and not (b'"isError"' in result or b'"resultType"' in result or b"\\u00" in result):
        return NO_FACTS
    try:
        return _facts.decode(result)
    except (msgspec.MsgspecError, RecursionError):
        # The result is nested deeper than this thread's stack allows.
        return _UNKNOWN_FACTS


def result_bytes(result: dict[str, Any]) -> bytes:
    """Encode a result that was decoded because its line had to be repaired. A number that JSON lacks becomes null."""
    return msgspec.json.encode(result)


GATEWAY_NAME = "gaia-mcp-gateway"

GATEWAY_KEY = "gaia.mcp/gateway"
"""The member of `_meta` by which a gateway tells what it is, where it introduces a single server by its own name."""

NOT_SENT = -31001
"""The server has not received the request, so the client can repeat it."""

OUTCOME_UNKNOWN = -31002
"""The server may have acted on the request, which is not a tool call."""

GENERATION = "Gaia-Generation"
"""The header of a request for one process of the server alone, with that process's generation number."""

FAILURE_KEY = "gaia.mcp/failure"
"""The member of `_meta` with the details of a failed tool call."""

_WITHOUT_CLASS = frozenset({"audit", MCPError.error_type})
"""The error types of a gateway without a class of their own in `gaia.mcp.errors`."""


def is_gateway(server_info: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    """Whether the server that introduces itself so is a gateway. Another server may only relay a gateway's answers."""
    return GATEWAY_KEY in meta or server_info.get("name") == GATEWAY_NAME


def details_of(server: str, error: MCPError, delivery: Delivery) -> dict[str, str]:
    """The details of a failure, for `data` of an error or `_meta` of a result."""
    return {"server": server, "errorType": error.error_type, "delivery": delivery}


def failed_result(text: str, details: Mapping[str, str]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {FAILURE_KEY: details}}


REFUSED: Mapping[str, str] = {"errorType": JsonRpcError.error_type, "delivery": "not_sent"}
"""The details of an error that is the gateway's own answer, before any server has received the request."""


def failure_of(code: int, message: str, data: object) -> MCPError | None:
    """The failure that a gateway reports in an error; None if the error comes from a server."""
    if isinstance(data, dict) and data.get("errorType") == JsonRpcError.error_type:
        refused = answered_error(code, message)
        refused.delivery = _delivery_in(data)
        return refused
    # Clients of other makers know an unknown tool by its code.
    return _failure(message, data) if code in (NOT_SENT, OUTCOME_UNKNOWN, INVALID_PARAMS) else None


def failure_in(result: Mapping[str, Any]) -> MCPError | None:
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
    # This client is connected, so `NotConnected` would report a misuse to its application.
    error = error_of("server_unavailable" if word == "not_connected" else word, message)
    if type(error) is MCPError and word not in _WITHOUT_CLASS:
        # It does not come from a gateway. Error types are labels of metrics, so servers must not invent any.
        return None
    error.delivery = _delivery_in(details)
    return error


def _delivery_in(details: Mapping[str, Any]) -> Delivery:
    return "not_sent" if details.get("delivery") == "not_sent" else "unknown"
