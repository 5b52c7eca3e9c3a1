"""Compares a request with recorded ones, and describes the difference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from gaia.mcp.config.trust import difference
from gaia.runtime.redaction import MASK
from gaia.runtime.untrusted_text import consists_of
from gaia.testing.cassette import RecordedExchange

_COMPARED = 500
"""Characters of arguments that are compared to find the closest recorded request. The time grows quadratically."""

_CANDIDATES = 200
"""Recorded requests that are compared to find the closest one, so that the client gets its answer in time."""


class CassetteMismatch(AssertionError):
    """Servers of a cassette received requests that were not recorded. The message shows each difference."""


def equals(recorded: Any, asked: Any) -> bool:
    """Whether `asked` equals the recorded value. A mask in the recording matches any text or number."""
    if isinstance(recorded, str) and MASK in recorded:
        if isinstance(asked, int | float) and not isinstance(asked, bool):
            return recorded == MASK
        return isinstance(asked, str) and consists_of(asked, recorded.split(MASK))
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        # Masked keys are rare. A masked key matches a key that matches no other.
        return len(recorded) == len(asked) and _pairs_equal(recorded, asked)
    if isinstance(recorded, list) and isinstance(asked, list):
        return len(recorded) == len(asked) and all(map(equals, recorded, asked))
    # True equals 1 in Python, but not in JSON.
    return isinstance(recorded, bool) == isinstance(asked, bool) and bool(recorded == asked)


def _pairs_equal(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    rest = [key for key in asked if key not in recorded]
    masked = [key for key in recorded if key not in asked]
    if not all(equals(value, asked[key]) for key, value in recorded.items() if key in asked):
        return False
    return all(
        equals(key, other) and equals(recorded[key], asked[other]) for key, other in zip(masked, rest, strict=True)
    )


def not_recorded(place: str, method: str, params: dict[str, Any], recorded: Sequence[RecordedExchange]) -> str:
    """The message for a request without an exchange left in `recorded`. `place` is the cassette and the server."""
    subject, arguments = _subject(method, params)
    same = [exchange for exchange in recorded if _subject(exchange.request, exchange.params)[0] == subject]
    equal = [exchange for exchange in same if equals(exchange.params, params)]
    begin = f"{place}: {subject} was asked for something that was not recorded"
    if equal:
        times = "once" if len(equal) == 1 else f"{len(equal)} times"
        shown = _text(_subject(method, equal[0].params)[1])
        return f"{place}: {subject} was asked for this {times} in the recording, and now once more:\n{shown}"
    if not same:
        others = sorted({_subject(one.request, one.params)[0] for one in recorded if one.is_call})
        return f"{begin}:\n{_text(arguments)}\nRecorded are {', '.join(others) or 'no calls'}."
    closest = max(same[:_CANDIDATES], key=lambda exchange: _similarity(exchange.params, params))
    before = _subject(closest.request, closest.params)[1]
    lines = difference(before, _unmasked(before, arguments))
    return "\n".join([f"{begin}; the closest recorded (-) and what was asked (+):", *lines])


def different_answer(place: str, method: str, recorded: dict[str, Any], given: dict[str, Any]) -> str:
    """The message for a server's request that the application answers differently from the recording."""
    begin = f"{place}: {method} of the server was answered otherwise; recorded (-) and answered now (+):"
    return "\n".join([begin, *difference(recorded, _unmasked(recorded, given))])


def _subject(method: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if method == "tools/call":
        rest = {key: value for key, value in params.items() if key not in ("name", "arguments")}
        arguments = params.get("arguments") or {}
        return f"tool {params.get('name')!r}", {**(arguments if isinstance(arguments, dict) else {}), **rest}
    return method, dict(params)


def _similarity(recorded: Any, asked: Any) -> float:
    return SequenceMatcher(None, _text(recorded)[:_COMPARED], _text(asked)[:_COMPARED], autojunk=False).ratio()


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _unmasked(recorded: Any, asked: Any) -> Any:
    """`asked` with the recording's masks in place of values, which may be secrets."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        return {key: _unmasked(recorded[key], value) if key in recorded else value for key, value in asked.items()}
    if isinstance(recorded, list) and isinstance(asked, list):
        pairs = zip(recorded, asked, strict=False)
        return [*(_unmasked(one, other) for one, other in pairs), *asked[len(recorded) :]]
    return recorded if equals(recorded, asked) else asked
