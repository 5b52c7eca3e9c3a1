"""Answers that are passed on as they came: of one line of JSON only the envelope is decoded, the result stays bytes."""

from __future__ import annotations

from typing import Any

import msgspec


class _Envelope(msgspec.Struct):
    """A response with a result. What is anything else does not fit, and is decoded as ordinary messages are."""

    jsonrpc: str
    id: int
    result: msgspec.Raw
    error: None = None
    method: None = None


class ResultFacts(msgspec.Struct, frozen=True):
    """The members of a result that say what it is."""

    # Any: a server may put any value there.
    result_type: Any = msgspec.field(default="complete", name="resultType")
    is_error: Any = msgspec.field(default=False, name="isError")


NO_FACTS = ResultFacts()

_LONG = 8 * 1024
"""Bytes."""

_envelope = msgspec.json.Decoder(_Envelope)
_facts = msgspec.json.Decoder(ResultFacts)


def decode_answer(line: bytes) -> tuple[int, bytes] | None:
    """The id and the result of a line that is a successful answer with an object; None for every other line.

    The result is valid JSON in valid UTF-8 without line ends, so it can be put into another message as it is.
    """
    try:
        envelope = _envelope.decode(line)
        if not line.isascii():
            # The decoder does not look at the characters of what stays as it is.
            line.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    result = bytes(envelope.result)
    if envelope.jsonrpc != "2.0" or result[:1] != b"{":
        return None
    if b"\n" in result or b"\r" in result:
        # Over HTTP, a message may have many lines. Within strings, JSON does not allow line ends.
        result = msgspec.json.format(result, indent=-1)
    return envelope.id, result


def facts_of(result: bytes) -> ResultFacts:
    """What a result that is an object says of itself. Most say nothing, and are not decoded."""
    # A long one is decoded in less time than it is searched twice.
    # Names of members may be written in escapes, too.
    if len(result) < _LONG and not any(word in result for word in (b'"isError"', b'"resultType"', b"\\u00")):
        return NO_FACTS
    try:
        return _facts.decode(result)
    except (msgspec.MsgspecError, RecursionError):
        # Nested as deeply as the stack of this thread allows no more.
        return NO_FACTS


def result_bytes(result: dict[str, Any]) -> bytes:
    """A result that had to be decoded, because its line had to be repaired. What is no number of JSON becomes null."""
    # Not as requests are encoded, which are refused for such a number.
    return msgspec.json.encode(result)
