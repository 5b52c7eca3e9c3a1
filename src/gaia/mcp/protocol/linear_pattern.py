"""Regular expressions of servers, by the rules of ECMA 262, matched in linear time.

Python's `re` takes exponential time for some patterns, and cannot be interrupted. The engine here is that of Rust,
which `jsonschema-rs` offers for the keyword ``pattern`` of JSON Schema.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from gaia.runtime.locks import import_apart

_MAX_PATTERN = 4000
_CLASS = re.compile(r"\\[dDsSwW]")
_MAX_CLASSES = 100
"""Of those of digits, words and blanks, and their opposites: to make a pattern ready takes time in proportion to the
square of their number, during which no other thread runs. For 4,900 each attempt took 15 s."""
_PATTERN_SIZES = tuple(1 << bits for bits in range(14, 21))
"""Bytes of a compiled pattern: a search takes time for each character, at worst in proportion to this."""


class LinearPattern(NamedTuple):
    """A pattern that was made ready. Thread-safe."""

    matcher: Any
    size: int
    """The limit in bytes that it was compiled within."""

    def occurs_in(self, text: str) -> bool:
        # The matcher takes no subclasses of str.
        return bool(self.matcher.is_valid(str(text)))


@lru_cache(maxsize=128)
def linear_pattern(pattern: str) -> LinearPattern | None:
    """A pattern made ready; None if it is no pattern, too large, or needs more than linear time, as look-ahead does."""
    import_apart("jsonschema_rs")
    import jsonschema_rs

    if len(pattern) > _MAX_PATTERN or len(_CLASS.findall(pattern)) > _MAX_CLASSES:
        return None
    for size in _PATTERN_SIZES:
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=size)
        with suppress(ValueError):
            return LinearPattern(jsonschema_rs.validator_for({"pattern": str(pattern)}, pattern_options=options), size)
    return None
