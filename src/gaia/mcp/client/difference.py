"""What has changed in something that a person has approved, in lines that people can read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gaia.untrusted_text import escaped

__all__ = ["difference"]

_CONTEXT = 3


def difference(approved: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    r"""A unified diff of two JSON objects, key by key, such as two definitions of a tool; None is nothing at all.

    Lines begin with ``@``, ``-``, ``+`` or a blank, as in any diff, and nothing in them is invisible: control and
    formatting characters are shown as ``\u{…}``.
    """
    before, after = approved or {}, now or {}
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = _lines(before, key), _lines(after, key)
        if old != new:
            lines += [f"@ {escaped(key)}", *_unified(old, new)]
    return lines


def _unified(old: list[str], new: list[str]) -> Iterator[str]:
    # The first three lines name files and line numbers: what is compared is in no file.
    for line in list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[3:]:
        yield "  …" if line.startswith("@@") else line


def _lines(values: Mapping[str, Any], key: str) -> list[str]:
    if key not in values:
        return []
    value = values[key]
    text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return escaped(text).split("\n")
