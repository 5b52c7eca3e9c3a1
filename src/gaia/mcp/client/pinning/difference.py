"""What has changed in a tool's definition, in lines that people can read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from gaia.mcp.client.pinning.definition import Definition
from gaia.untrusted_text import escaped

__all__ = ["difference"]

_CONTEXT = 3


def difference(approved: Definition | None, now: Definition | None) -> list[str]:
    r"""A unified diff of two definitions of a tool, part by part; None is no tool at all.

    Lines begin with ``@``, ``-``, ``+`` or a blank, as in any diff, and nothing in them is invisible: control and
    formatting characters are shown as ``\u{…}``.
    """
    before, after = approved or {}, now or {}
    lines: list[str] = []
    for part in dict.fromkeys([*before, *after]):
        old, new = _lines(before, part), _lines(after, part)
        if old != new:
            lines += [f"@ {escaped(part)}", *_unified(old, new)]
    return lines


def _unified(old: list[str], new: list[str]) -> Iterator[str]:
    # The first three lines name files and line numbers: what is compared is in no file.
    for line in list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[3:]:
        yield "  …" if line.startswith("@@") else line


def _lines(definition: Definition, part: str) -> list[str]:
    if part not in definition:
        return []
    value: Any = definition[part]
    text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return escaped(text).split("\n")
