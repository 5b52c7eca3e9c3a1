"""JSON as editors write it: with comments, and with commas after the last item.

The libraries for this are either JSON5, which accepts much more than these files may have, or no longer maintained; the
two rules need less code than a dependency needs care.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["loads"]

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])")
_VISIBLE = re.compile(r"[^\n]")


def loads(text: str) -> Any:
    """The value in `text`. Raises json.JSONDecodeError, whose line and column are those of `text`."""
    # Each character is replaced by a blank, so that everything else stays where it is. Comments go first: one may stand
    # between a comma and its bracket.
    return json.loads(_TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text)))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else _VISIBLE.sub(" ", found)
