"""Makes text of servers and models safe to show to a person: names, descriptions, results and errors."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["clean", "escaped", "one_line"]

# Compiled when first used (`re` caches them): most programs that import this module never use them.
_TERMINAL_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]"  # the rest of ECMA-35
)
# Bidirectional controls, which reorder the text that a person sees, and characters that programs and models read but
# a person does not see: zero-width blanks, tags. Joiners stay, because scripts and emoji need them.
_CONTROL_CHARACTER = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)

_MAX_LINE = 2000
"""Characters: longer than names, paths and first sentences are."""

_VARIATION_SELECTOR = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"


def clean(untrusted: object) -> str:
    """`untrusted` as text without anything that a terminal would act on; line breaks and tabs stay."""
    without = re.sub(_CONTROL_CHARACTER, "", re.sub(_TERMINAL_SEQUENCE, "", str(untrusted)))
    # JSON can carry lone surrogates, which terminals cannot show.
    return without.encode("utf-8", "replace").decode("utf-8")


def one_line(untrusted: object) -> str:
    """`clean`, and everything on one line of at most 2,000 characters."""
    line = " ".join(clean(untrusted).split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"


def escaped(untrusted: object) -> str:
    r"""`untrusted` with each invisible character, and each that changes how others look, shown as ``\u{…}``.

    For a person who has to judge the text: nothing is left out. Line breaks stay.
    """
    # Text that already looks escaped is distinguished from what is escaped here.
    text = str(untrusted).replace("\\u{", "\\u{005c}u{")
    return "".join(f"\\u{{{ord(character):04x}}}" if _is_invisible(character) else character for character in text)


def _is_invisible(character: str) -> bool:
    if character in " \n":
        return False
    # Controls, formats (bidirectional, zero-width, tags), surrogates, private use, unassigned; all other blanks.
    return unicodedata.category(character)[0] in "CZ" or re.match(_VARIATION_SELECTOR, character) is not None
