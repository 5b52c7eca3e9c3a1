"""URI templates (RFC 6570), as far as it takes to guess which server a URI belongs to."""

from __future__ import annotations

import re

__all__ = ["matches"]

_EXPRESSION = re.compile(r"\{[^{}]*\}")


def matches(template: str, uri: str) -> bool:
    """Whether the fixed parts of a template stand in a URI in their order. In linear time: servers write templates."""
    if template == uri:
        return True
    first, *rest = _EXPRESSION.split(template)
    if not rest:
        return False
    *between, last = rest
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    position, end = len(first), len(uri) - len(last)
    for part in between:
        found = uri.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return position <= end
