"""Text that others wrote, made safe to show to a person: names, descriptions, results and errors of servers."""

from __future__ import annotations

import re

__all__ = ["clean", "one_line"]

_TERMINAL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]"  # the rest of ECMA-35
)
# The bidirectional controls are among them: they make a text read differently from what it says.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(untrusted: object) -> str:
    """`untrusted` as text without anything that a terminal would act on; line breaks and tabs stay."""
    without = _CONTROL_CHARACTER.sub("", _TERMINAL_SEQUENCE.sub("", str(untrusted)))
    # JSON can carry lone surrogates, which no terminal can.
    return without.encode("utf-8", "replace").decode("utf-8")


def one_line(untrusted: object) -> str:
    """`clean`, and everything on one line."""
    return " ".join(clean(untrusted).split())
