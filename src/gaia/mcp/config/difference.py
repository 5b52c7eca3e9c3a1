"""What has changed in something that a person has approved, in lines that people can read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gaia.runtime.untrusted_text import escaped, escaped_line

_CONTEXT = 3


def difference(approved: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    r"""A unified diff of two JSON objects, key by key, such as two definitions of a tool; None is nothing at all.

    Lines begin with ``@``, ``-``, ``+`` or a blank, as in any diff, and nothing in them is invisible: control and
    formatting characters are shown as ``\u{…}``.
    """
    return text_difference(_texts(approved or {}), _texts(now or {}))


def text_difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The same of texts that are shown as they are; their keys are escaped here."""
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = ([] if key not in texts else texts[key].split("\n") for texts in (before, after))
        if old != new:
            lines += [f"@ {escaped_line(key)}", *_unified(old, new)]
    return lines


def _unified(old: list[str], new: list[str]) -> Iterator[str]:
    # The first three lines name files and line numbers: what is compared is in no file.
    for line in list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[3:]:
        yield "  …" if line.startswith("@@") else line


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: escaped(value if isinstance(value, str) else _json(value)) for key, value in values.items()}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
