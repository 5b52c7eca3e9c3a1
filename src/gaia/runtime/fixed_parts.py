"""Texts of which only some parts are fixed. In linear time, unlike a pattern: others write them."""

from __future__ import annotations

from collections.abc import Sequence


def consists_of(text: str, parts: Sequence[str]) -> bool:
    """Whether `text` begins with the first part, ends with the last, and has the others in their order between them.

    Anything may be between two parts. There are at least two, which may be empty, and they do not overlap.
    """
    first, *between, last = parts
    if not (text.startswith(first) and text.endswith(last)):
        return False
    position, end = len(first), len(text) - len(last)
    for part in between:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return position <= end
