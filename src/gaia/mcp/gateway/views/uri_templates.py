"""URI templates (RFC 6570), as far as it takes to guess which server a URI belongs to."""

from __future__ import annotations

import re

from gaia.fixed_parts import consists_of

__all__ = ["matches"]

_EXPRESSION = re.compile(r"\{[^{}]*\}")


def matches(template: str, uri: str) -> bool:
    """Whether the fixed parts of a template stand in a URI in their order. In linear time: servers write templates."""
    parts = _EXPRESSION.split(template)
    return template == uri or (len(parts) > 1 and consists_of(uri, parts))
