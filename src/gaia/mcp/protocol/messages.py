"""JSON-RPC 2.0 messages (MCP specification, "Base Protocol"): immutable values, and bytes to and from them."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import orjson

from gaia.mcp.protocol.framing import OversizedLine

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_DEPTH = 254
"""Levels of nesting in a message: orjson's limit, and fewer than the standard library's recursion allows."""

_MAY_BE_DEEP = 2 * MAX_DEPTH
"""Bytes. Each level takes at least two, so shorter messages cannot be too deep."""

_LONG_LINE = 16 * 1024
"""Bytes. In a longer line, counting brackets takes longer than counting the members of an ordinary answer."""

_END_LINE = orjson.OPT_APPEND_NEWLINE

_END = 1024
"""Bytes at each end of a line in which an answer's id is searched."""

_MAX_ID = 1024

_MAX_METHOD = 1024
"""Characters, because names of spans and fields of log events contain the method."""

RequestId = int | str


class Request(msgspec.Struct, frozen=True):
    """A request from the server. The answer must have the same id."""

    id: RequestId
    method: str
    params: dict[str, Any]
    call_id: int | None = None
    """The id of our request on whose stream it came, if the transport has such streams."""


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: dict[str, Any]
    call_id: int | None = None


class Response(msgspec.Struct, frozen=True):
    """A successful answer. `result` is an object in every MCP revision; the connection refuses any other value."""

    id: RequestId
    result: Any


class ErrorResponse(msgspec.Struct, frozen=True):
    """An answer that reports an error. `id` is None if the server could not read our request's id."""

    id: RequestId | None
    error: Any


def is_tool_error(result: Mapping[str, Any]) -> bool:
    """Whether a result says that the tool failed (specification, "Tools", "Error Handling")."""
    return result.get("isError") is True


def says_safe_to_repeat(annotations: Mapping[str, Any]) -> bool:
    """Whether a second call does no harm (``readOnlyHint`` or ``idempotentHint``)."""
    # Only a plain true is a promise; the string "false" is not.
    return annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True


Message = Request | Notification | Response | ErrorResponse


class NotAMessage(ValueError):
    """The bytes are not a JSON-RPC 2.0 message."""


class NestedTooDeep(NotAMessage):
    """The message is nested deeper than `MAX_DEPTH` levels, more than orjson and recursive code can handle."""

    def __init__(self, identifier: RequestId | None) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")
        self.identifier = identifier


class Refusal(Exception):
    """The error with which to answer a server's request. The message must hold no secrets of the client."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def decode(line: bytes) -> Message | list[Message]:
    """One line as a message, or as the messages of a batch (revision 2025-03-26 allows a server to send one).

    Repairs invalid Unicode and numbers that only Python's own parser accepts, because a stray byte must lose neither an
    answer nor the other messages of its batch. Raises `NotAMessage` for everything else, and `NestedTooDeep` for
    harmful nesting.
    """
    size = len(line)
    try:
        value = orjson.loads(line) if size < LONG else loads(line)
    except orjson.JSONDecodeError:
        value = _decode_leniently(line)
    if size > _MAY_BE_DEEP and _is_too_deep(line, value):
        raise NestedTooDeep(_answered_id(value))
    return _batch(value) if type(value) is list else _message(value)


def _has_few_members(value: Any) -> bool:
    members, pending = 0, [value]
    while pending:
        container = pending.pop()
        if type(container) is dict or type(container) is list:
            members += len(container)
            if members >= MAX_DEPTH:
                return False
            pending.extend(_children(container))
    return True


def _is_too_deep(line: bytes, value: Any) -> bool:
    # Few members cannot be too deep, and counting the brackets of a long text takes time.
    if (len(line) > _LONG_LINE and _has_few_members(value)) or line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    try:
        orjson.dumps(value)
    except TypeError:
        # orjson refuses nesting deeper than `MAX_DEPTH`, but also integers over 64 bits.
        level = [value]
        for _ in range(MAX_DEPTH):
            level = [item for above in level for item in _children(above)]
        return bool(level)
    return False


def _children(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) is list else ()


def _answered_id(value: Any) -> RequestId | None:
    identifier = value.get("id") if type(value) is dict and "method" not in value else None
    return identifier if type(identifier) is int or type(identifier) is str else None


def _decode_leniently(line: bytes) -> Any:
    try:
        # The standard parser also accepts NaN, Infinity and lone surrogates, which real servers write.
        return _encodable(json.loads(line.decode("utf-8", "replace")))
    except RecursionError as error:
        # The answered request must not wait for its deadline.
        raise NestedTooDeep(OversizedLine(len(line), line[:_END], line[-_END:]).answered_id()) from error
    except ValueError as error:
        raise NotAMessage(str(error)) from error


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, because printing, logging and sending them raises."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


def _batch(items: list[Any]) -> list[Message]:
    messages = []
    for item in items:
        with contextlib.suppress(NotAMessage):
            messages.append(_message(item))
    if not messages:
        raise NotAMessage("a batch without any message")
    return messages


def _message(value: Any) -> Message:
    if type(value) is not dict or value.get("jsonrpc") != "2.0":
        raise NotAMessage("not a JSON-RPC 2.0 object")
    identifier = value.get("id")
    # In Python bool is an int, and True would match the call with id 1.
    if type(identifier) is not int and identifier is not None:
        if type(identifier) is not str:
            raise NotAMessage(f"the id is a {type(identifier).__name__}")
        if len(identifier) > _MAX_ID:
            # An answer repeats the id, and many answers may wait for a server that does not read.
            raise NotAMessage(f"the id has {len(identifier)} characters")
    if "method" in value:
        return _request_or_notification(value, identifier)
    # Some servers always write both members; the one that is not null counts.
    if "result" in value and identifier is not None and value.get("error") is None:
        return Response(identifier, value["result"])
    if "error" in value:
        return ErrorResponse(identifier, value["error"])
    raise NotAMessage("neither a method, a result nor an error")


def _request_or_notification(value: dict[str, Any], identifier: RequestId | None) -> Request | Notification:
    method, params = value["method"], value.get("params")
    if type(method) is not str:
        raise NotAMessage("the method is not a string")
    if len(method) > _MAX_METHOD:
        raise NotAMessage(f"the method has {len(method)} characters")
    # PHP writes an empty object as an empty list.
    if params is None or params == []:
        params = {}
    elif type(params) is not dict:
        raise NotAMessage("the params are not an object")
    return Notification(method, params) if identifier is None else Request(identifier, method, params)


def encode_request(identifier: RequestId, method: str, params: dict[str, Any] | None) -> bytes:
    """One line, newline included. Raises ValueError if `params` cannot be expressed in JSON."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": identifier, "method": method}
    if params is not None:
        message["params"] = params
    # Not `_encode`, because every call takes this path.
    try:
        return orjson.dumps(message, option=_END_LINE)
    except TypeError:
        return _encode(message)


def encode_notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    given = {} if params is None else {"params": params}
    return _encode({"jsonrpc": "2.0", "method": method, **given})


def encode_result(identifier: RequestId, result: dict[str, Any]) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": identifier, "result": result})


def encode_error(identifier: RequestId, code: int, message: str) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}})


def _encode(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message, option=_END_LINE)
    except TypeError:
        # JSON allows values that orjson refuses: integers over 64 bits, lone surrogates, keys that are not strings.
        pass
    try:
        return json.dumps(message, separators=(",", ":"), allow_nan=False, default=_decoded).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be sent as JSON: {error}") from error


def _decoded(value: object) -> Any:
    """Decode a fragment of JSON that is only passed on, because `json` cannot write it."""
    if isinstance(value, orjson.Fragment):
        return json.loads(orjson.dumps(value))
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def value_size(value: Any) -> int:
    """The approximate bytes of a JSON value, or a struct of such values, as Python objects.

    A value that occurs twice counts twice. Time is proportional to the number of objects, not to the length of strings.
    """
    size = 0
    open_values = [value]
    while open_values:
        one = open_values.pop()
        size += sys.getsizeof(one)
        if isinstance(one, dict):
            open_values.extend(one)
            open_values.extend(one.values())
        elif isinstance(one, list | tuple):
            open_values.extend(one)
        elif isinstance(one, msgspec.Struct):
            open_values.extend(msgspec.structs.astuple(one))
    return size


# Long strings are mostly pictures and files in Base64. A JSON decoder searches each byte of a string for escapes, which
# takes several times as long as decoding its text. So long strings without any escape are cut out of a line, and put
# back into the decoded rest. For 1 MiB that takes a third of the time.

LONG = 64 * 1024
"""Bytes. From this length on, cutting a string out is faster."""

_MAX_STRINGS = 64

_MAX_REST = 4096
"""Bytes besides the long strings, because the whole decoded rest is searched for placeholders."""

# Random, so that no server can guess the placeholder of a string.
_PLACE = f"{secrets.token_hex(16)}-"


def loads(line: bytes) -> Any:
    """`orjson.loads` for lines of at least `LONG` bytes; long strings may contain control characters."""
    spans = list(_long_strings(line))
    if len(line) - sum(end - start for start, end in spans) > _MAX_REST:
        return orjson.loads(line)
    view, rest, done = memoryview(line), bytearray(), 0
    texts: dict[Any, str] = {}
    for start, end in spans:
        place = f"{_PLACE}{len(texts)}"
        try:
            texts[place] = str(view[start:end], "utf-8")
        except UnicodeDecodeError:
            return orjson.loads(line)
        rest += view[done:start]
        rest += place.encode()
        done = end
    rest += view[done:]
    value = orjson.loads(rest)
    # A placeholder is missing if its string was a key, or the value of a repeated key.
    return value if _put_back(texts, value) == len(texts) else orjson.loads(line)


def _long_strings(line: bytes) -> Iterator[tuple[int, int]]:
    end = -1
    for _ in range(_MAX_STRINGS):
        start = line.find(b'"', end + 1) + 1
        end = line.find(b'"', start)
        if start == 0 or end < 0 or line.find(b"\\", start, end) >= 0:
            return
        if end - start >= LONG:
            yield start, end


def _put_back(texts: dict[Any, str], value: Any) -> int:
    filled, pending = 0, [value]
    while pending:
        container = pending.pop()
        if type(container) is dict:
            members = container.items()
        elif type(container) is list:
            members = enumerate(container)  # type: ignore[assignment]
        else:
            continue
        for key, item in members:
            if type(item) is not str:
                pending.append(item)
            elif item in texts:
                container[key] = texts[item]
                filled += 1
    return filled
