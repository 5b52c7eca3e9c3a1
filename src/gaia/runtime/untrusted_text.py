"""Makes text of servers and models safe to show to a person: names, descriptions, results and errors."""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

# Patterns are compiled on first use (`re` caches them), because most programs never use them. Each takes linear time:
# long parts are either possessive, or end where the next match could begin.
_TERMINAL_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor movements
    # Strings: titles, links, clipboard. Without their end, terminals drop all that follows, up to the next escape.
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*+[0-~]"  # the rest of ECMA-35
)

_DEFAULT_IGNORABLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The property Default_Ignorable_Code_Point of Unicode 17.0 (DerivedCoreProperties.txt): characters that terminals do
not draw, but programs and models read, such as variation selectors, tags and fillers."""

_BLANK_PATTERN = "\u2800"

_NEEDED = "(?![\u200c\u200d\ufe0e\ufe0f])"
"""Joiners and the two selectors of emoji stay in readable text: scripts and emoji need them."""

_CONTROL_CHARACTER = f"{_NEEDED}[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb{_DEFAULT_IGNORABLE}]"

_MAX_LINE = 2000
"""Characters. Names, paths and first sentences are shorter."""

_EXCERPT = 500

_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")
"""The scripts with letters that look like letters of another script."""


def clean(untrusted: object) -> str:
    """`untrusted` as text without characters that a terminal would interpret; line breaks and tabs stay."""
    text = str(untrusted)
    if not text.isascii() or not text.isprintable():
        text = re.sub(_CONTROL_CHARACTER, "", re.sub(_TERMINAL_SEQUENCE, "", text)).replace(_BLANK_PATTERN, " ")
    # JSON can carry lone surrogates, which terminals cannot show.
    return text.encode("utf-8", "replace").decode("utf-8")


def one_line(untrusted: object) -> str:
    line = " ".join(clean(untrusted).split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"


def indented(untrusted: object) -> str:
    """`clean`, with every line but the first indented, so that no line looks like this program's own."""
    return "\n  ".join(clean(untrusted).split("\n"))


def escaped(untrusted: object) -> str:
    r"""`untrusted` for a person to judge: characters that are invisible or change others appear as ``\u{…}``."""
    # Distinguish text that already looks escaped from characters escaped here.
    text = str(untrusted).replace("\\u{", "\\u{005c}u{")
    return re.sub(r"[^\n -~]", _shown, text)


def escaped_line(untrusted: object) -> str:
    r"""`escaped`, on one line: line breaks are shown as ``\u{000a}``. For names, commands and values.

    In a word that mixes scripts with similar letters, such as Latin and Cyrillic, all letters except the Latin ones are
    shown as ``\u{…}``.
    """
    text = str(untrusted).replace("\\u{", "\\u{005c}u{")
    if text.isascii() and text.isprintable():
        return text
    return re.sub(r"[^ -~]", _shown, re.sub(r"\w+", _unmixed, text))


def _shown(match: re.Match[str]) -> str:
    return _escape(match[0]) if _is_invisible(match[0]) else match[0]


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):04x}}}"


def _unmixed(match: re.Match[str]) -> str:
    if match[0].isascii():
        return match[0]
    scripts = [_script(character) for character in match[0]]
    if len(set(scripts) - {None}) < 2:
        return match[0]
    pairs = zip(match[0], scripts, strict=True)
    return "".join(character if script in (None, "LATIN") else _escape(character) for character, script in pairs)


@functools.lru_cache(maxsize=4096)
def _script(character: str) -> str | None:
    """The script of a letter, if it is in `_ALIKE`. The letter's Unicode name begins with it."""
    script = unicodedata.name(character, "").partition(" ")[0]
    return script if script in _ALIKE else None


@functools.lru_cache(maxsize=4096)
def _is_invisible(character: str) -> bool:
    # Controls, formats, surrogates, private use, unassigned, and all blanks but the space are not printable.
    return not character.isprintable() or re.match(f"[{_DEFAULT_IGNORABLE}{_BLANK_PATTERN}]", character) is not None


def parsed_arguments(written: object) -> dict[str, Any]:
    """The arguments of a tool call as a model wrote them: a JSON object as text, or a dict.

    Empty text means no arguments. Raises ValueError with a message that tells the model what to do.
    """
    if isinstance(written, dict):
        return written
    if written is None or (isinstance(written, str) and not written.strip()):
        return {}
    excerpt = str(written) if len(str(written)) <= _EXCERPT else f"{str(written)[:_EXCERPT]}…"
    try:
        arguments = json.loads(written) if isinstance(written, str) else written
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"the arguments are not valid JSON ({error}): {excerpt}; call the tool again with a JSON object"
        ) from None
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments must be a JSON object, not {excerpt}")  # noqa: TRY004 - one exception for every mistake
    return arguments


def consists_of(text: str, parts: Sequence[str]) -> bool:
    """Whether `text` begins with the first part, ends with the last, and has the others in order between them.

    There are at least two parts, which may be empty, and they do not overlap. Takes linear time, unlike a pattern,
    because the texts are untrusted.
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
