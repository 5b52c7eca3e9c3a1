"""How much a server may say of its tools. Far more than any honest server says, and no more than can be handled.

A definition travels on: to models, to logs, to tables on a terminal, to hashes. What is nested without end makes each
of them fail in a way of its own, so it is stopped where it comes in.
"""

from __future__ import annotations

from collections.abc import Mapping

from gaia.mcp.errors import InvalidResponse

__all__ = ["MAX_DEFINITION", "MAX_LISTING", "MAX_TOOLS", "size_within_limits"]

MAX_TOOLS = 2_000
"""Of one server."""

MAX_DEFINITION = 256 * 1024
"""Characters of one tool, roughly as in JSON."""

MAX_LISTING = 16 * 1024 * 1024
"""Characters of all tools of one server."""

_MAX_DEPTH = 64
"""Levels of nesting in one definition; references (``$ref``) count where they stand, and are not followed."""


def size_within_limits(definition: object) -> int:
    """The size of a definition in characters, roughly. Raises InvalidResponse if it is too long or nested too deep."""
    size = 0
    level = [definition]
    # Level by level, because recursion is what a nested value is made to exhaust.
    for _ in range(_MAX_DEPTH):
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                size += len(value)
            elif isinstance(value, Mapping):
                size += sum(len(str(key)) for key in value)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        size += 2 * len(level)
        if size > MAX_DEFINITION:
            raise InvalidResponse(f"its definition is longer than {MAX_DEFINITION} characters")
        if not below:
            return size
        level = below
    raise InvalidResponse(f"its definition is nested deeper than {_MAX_DEPTH} levels")
