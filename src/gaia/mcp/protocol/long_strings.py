"""Decodes lines that are long because of few long strings: pictures and files in Base64, mostly.

A JSON decoder looks at each byte of a string for what has to be unescaped, which takes several times as long as making
text of it. So long strings without any escape are taken out of a line, and put back into what the decoder makes of the
rest. For 1 MiB that takes a third of the time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import orjson

LONG = 64 * 1024
"""Bytes from which on it is worth the trouble."""

_MAX_STRINGS = 64
"""So many strings at the beginning of a line are looked at."""

_MAX_REST = 4096
"""Bytes besides the long strings. All of what is decoded of them is searched for the places of the strings."""

# No server can guess what stands for a string meanwhile.
_PLACE = f"{secrets.token_hex(16)}-"


def loads(line: bytes) -> Any:
    """Like `orjson.loads`, but that long strings may contain control characters. Raises `orjson.JSONDecodeError`.

    For lines of at least `LONG` bytes; a shorter one has no long string.
    """
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
    # Not all are there if one was a key, or the value of a key that comes twice.
    return value if _put_back(texts, value) == len(texts) else orjson.loads(line)


def _long_strings(line: bytes) -> Iterator[tuple[int, int]]:
    """Where the contents of the long strings begin and end, as long as no string before them has an escape."""
    end = -1
    for _ in range(_MAX_STRINGS):
        start = line.find(b'"', end + 1) + 1
        end = line.find(b'"', start)
        if start == 0 or end < 0 or line.find(b"\\", start, end) >= 0:
            return
        if end - start >= LONG:
            yield start, end


def _put_back(texts: dict[Any, str], value: Any) -> int:
    """How many of the places were found and filled."""
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
