"""Messages between the gateway and its clients: decoding, encoding, and `RequestRefused` for error answers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import orjson

from gaia.mcp.client.features import LOG_LEVELS
from gaia.mcp.protocol.gateway_answers import REFUSED
from gaia.mcp.protocol.messages import INVALID_PARAMS, INVALID_REQUEST, RequestId


class RequestRefused(Exception):
    """The error that answers a client's request. The client sees the message, so it must contain no secret."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int = 200) -> None:
        """`status` is the HTTP status, if no part of the response was sent before."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = REFUSED if data is None else data
        self.status = status


_LONG = 8 * 1024
"""Bytes above which decoding is faster than searching."""


def may_have(encoded: bytes, name: bytes) -> bool:
    """Whether JSON may have a member with this name, given in quotation marks. Escapes in the name count too."""
    # Decoding a long text takes less time than searching it.
    return len(encoded) >= _LONG or name in encoded or b"\\u00" in encoded


def with_members(result: bytes, members: bytes) -> bytes:
    """Insert `members`, which must be new, at the front of a JSON object."""
    if result[:2] == b'{"':
        # Results may be long, and a slice would copy them.
        return b"".join((b"{", members, b",", memoryview(result)[1:]))
    rest = result.lstrip()[1:].lstrip()
    return b"{%b%b%b" % (members, b"" if rest[:1] == b"}" else b",", rest)


_SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}


def severity(level: object) -> int:
    """The index of a level. Unknown levels count as info."""
    return _SEVERITY.get(str(level), 1)


def is_wanted(level: object, least: str | None) -> bool:
    """Whether `level` is at least as severe as `least`; False if `least` is None."""
    return least is not None and severity(level) >= severity(least)


PARSE_ERROR = -32700

META = "io.modelcontextprotocol/"
"""Prefix of the protocol's own keys of ``_meta``."""

EMPTY_RESULT = b"{}"

_MAX_ID = 1024
_MAX_METHOD = 1024

Params = Mapping[str, msgspec.Raw]

T = TypeVar("T")


class ClientMessage(msgspec.Struct, frozen=True):
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
    """Decode a message. Raises `RequestRefused` for other content, such as batches of old revisions."""
    try:
        if not body.isascii():
            # The gateway passes some values on as bytes and never decodes them, so it checks their UTF-8 here.
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


@functools.cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    # Decoding with a decoder takes a third of the time that it takes with a type, and there are few types.
    return msgspec.json.Decoder(kind)


def member(params: Params, key: str, kind: type[T]) -> T | None:
    """One member of the params; None if it is missing. Raises `RequestRefused` if it has another type."""
    raw = params.get(key)
    if raw is None:
        return None
    # mypy does not know that types are hashable.
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(INVALID_PARAMS, f"{key}: {error}") from None


def fragment(raw: msgspec.Raw) -> orjson.Fragment:
    encoded = bytes(raw)
    if b"\n" in encoded or b"\r" in encoded:
        # Over stdio, a line break would end the message. JSON allows line breaks only between values.
        encoded = msgspec.json.format(encoded, indent=-1)
    return orjson.Fragment(encoded)


def encode_response(identifier: RequestId | None, result: bytes, members: bytes = b"") -> bytes:
    """A response with a result, into which `members` are inserted, see `with_members`."""
    # A single step, because results may be long and each `+` and each slice would copy them.
    rest: bytes | memoryview = result
    if members and result[:2] == b'{"':
        members, rest = b"{%b," % members, memoryview(result)[1:]
    elif members:
        members, rest = b"", with_members(result, members)
    return b"".join((b'{"jsonrpc":"2.0","id":', _encoder.encode(identifier), b',"result":', members, rest, b"}"))


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


COMPLETE = b'"resultType":"complete"'
"""The member of a result of the stateless era if its server gave none."""


def has_result_type(result: bytes) -> bool:
    return may_have(result, b'"resultType"') and "resultType" in _members.decode(result)


def cacheable_result(result: bytes) -> bytes:
    """Add the required members of a cacheable result of the stateless era. By default it must not be cached."""
    members = _members.decode(result)
    for name, value in (("ttlMs", b"0"), ("cacheScope", b'"private"')):
        if name not in members:
            result = with_members(result, b'"' + name.encode() + b'":' + value)
    return result
