"""`RequestRefused`: the error that a client's request is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import orjson

from gaia.mcp.protocol.messages import INVALID_PARAMS, INVALID_REQUEST, RequestId


class RequestRefused(Exception):
    """A request is answered with this error. The message is shown to the client, and holds no secret."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        """`status` is that of the HTTP response, if no part of the response was sent before."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status


_LONG = 8 * 1024
"""Bytes."""


def may_have(encoded: bytes, name: bytes) -> bool:
    """Whether JSON may have a member of this name, which is given in quotation marks. It may be written in escapes."""
    # A long one is decoded in less time than it is searched.
    return len(encoded) >= _LONG or name in encoded or b"\\u00" in encoded


def with_members(result: bytes, members: bytes) -> bytes:
    """An object of JSON with more members, which it does not have, in front."""
    rest = result.lstrip()[1:].lstrip()
    return b"{%b%b%b" % (members, b"" if rest[:1] == b"}" else b",", rest)


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The words of RFC 5424, the least severe first."""

_SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}


def severity(level: object) -> int:
    """The place of a level among the words; unknown ones count as info."""
    return _SEVERITY.get(str(level), 1)


def is_wanted(level: object, least: str | None) -> bool:
    """Whether a message of `level` is as severe as `least`; with None, none is wanted."""
    return least is not None and severity(level) >= severity(least)


PARSE_ERROR = -32700

META = "io.modelcontextprotocol/"
"""Keys of ``_meta`` that belong to the protocol begin so."""

EMPTY_RESULT = b"{}"

_MAX_ID = 1024
_MAX_METHOD = 1024
"""Characters."""

Params = Mapping[str, msgspec.Raw]

T = TypeVar("T")


class ClientMessage(msgspec.Struct, frozen=True):
    """One message of a client: a request, a notification, or a response to a request of the gateway."""

    jsonrpc: str
    id: RequestId | None = None
    method: str | None = None
    params: dict[str, msgspec.Raw] | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_message = msgspec.json.Decoder(ClientMessage)
_encoder = msgspec.json.Encoder()
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_message(body: bytes) -> ClientMessage:
    """Raises `RequestRefused` for what is no message, and for batches, which current revisions do not have."""
    try:
        if not body.isascii():
            # Strings that are passed on as bytes are not looked at again.
            body.decode()
        message = _message.decode(body)
    except msgspec.ValidationError as error:
        raise RequestRefused(INVALID_REQUEST, f"no JSON-RPC 2.0 message: {error}", status=400) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(PARSE_ERROR, f"the body is no JSON: {error}", status=400) from None
    identifier, method = message.id, message.method
    if message.jsonrpc != "2.0" or (identifier is None and method is None):
        raise RequestRefused(INVALID_REQUEST, "no JSON-RPC 2.0 message", status=400)
    if isinstance(identifier, str) and len(identifier) > _MAX_ID:
        raise RequestRefused(INVALID_REQUEST, f"the id is longer than {_MAX_ID} characters", status=400)
    if method is not None and len(method) > _MAX_METHOD:
        raise RequestRefused(INVALID_REQUEST, f"the method is longer than {_MAX_METHOD} characters", status=400)
    return message


def member(params: Params, key: str, kind: type[T]) -> T | None:
    """One member of the params, None if it is missing. Raises `RequestRefused` if it is of another type."""
    raw = params.get(key)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(INVALID_PARAMS, f"{key}: {error}") from None


def fragment(raw: msgspec.Raw) -> orjson.Fragment:
    """A value to be passed on as it came."""
    encoded = bytes(raw)
    if b"\n" in encoded or b"\r" in encoded:
        # Over stdio, the end of a line ends the message. Within strings, JSON does not allow it.
        encoded = msgspec.json.format(encoded, indent=-1)
    return orjson.Fragment(encoded)


def encode_response(identifier: RequestId | None, result: bytes) -> bytes:
    """The response with a result that is JSON already."""
    # In one step: results may be long, and each `+` would copy them.
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encoder.encode(identifier), result)


def encode_error(identifier: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encoder.encode({"jsonrpc": "2.0", "id": identifier, "error": error})


def encode_notification(method: str, params: Mapping[str, Any] | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _encoder.encode(message)


def encode_request(identifier: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    return _encoder.encode({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})


def stateless_result(result: bytes) -> bytes:
    """A result of a server as the stateless era wants it: with a ``resultType``, "complete" if the server gave none."""
    if may_have(result, b'"resultType"') and "resultType" in _members.decode(result):
        return result
    return with_members(result, b'"resultType":"complete"')


def cacheable_result(result: bytes) -> bytes:
    """A result that the stateless era allows to be kept, which has to say for how long: not at all, if it does not."""
    members = _members.decode(result)
    for name, value in (("ttlMs", b"0"), ("cacheScope", b'"private"')):
        if name not in members:
            result = with_members(result, b'"' + name.encode() + b'":' + value)
    return result
