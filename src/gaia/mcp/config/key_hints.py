"""What a key that means nothing was probably meant to be, and whether leaving it aside would be dangerous."""

from __future__ import annotations

import re
from collections.abc import Collection

_LIMITING_KEYS = frozenset(
    ("enabledTools", "disabledTools", "pinTools", "sandbox", "disabled", "captureContent", "captureContentTools")
)
"""If one of these is misspelt and left aside, what it forbids is permitted. So that is an error, unlike other keys."""

_DENY = r"(deny|denied|disallow(ed)?|excluded?|block(ed)?|forbid(den)?|disabled?)"
_ALLOW = r"(allow(ed)?|included?|permit(ted)?|enabled?)"
_LIMITING_WORDS = (
    (r"(is)?(enabled?|active|disable)", "disabled"),
    (rf"{_DENY}(tools?|list)?|tools?{_DENY}|blacklist", "disabledTools"),
    (rf"{_ALLOW}(tools?|list)?|only(tools?|list)|tools?({_ALLOW}|only|filters?)?|whitelist", "enabledTools"),
    (r"pins?|pinned(tools?)?", "pinTools"),
    (r"sandbox\w*", "sandbox"),
)
"""What the same is called elsewhere, by patterns for keys without case and punctuation; the first match counts."""

_SWITCHES_ON = r"(is)?(enabled?|active)"

_MAX_LENGTH = 64
"""Longer keys resemble none, and would take long to compare."""


def similar_key(key: str, known: Collection[str]) -> str | None:
    """The known key that this one resembles most, or is another word for; None if there is none."""
    letters = _letters(key)
    if len(key) > _MAX_LENGTH:
        return None
    for pattern, meant in _LIMITING_WORDS:
        if meant in known and re.fullmatch(pattern, letters):
            return meant
    # Imported here because most configurations have no such keys.
    import difflib

    lowered = {each.lower(): each for each in known}
    close = difflib.get_close_matches(letters, lowered, n=1)
    return lowered[close[0]] if close else None


def limits(key: str, similar: str | None, value: object) -> bool:
    """Whether an unknown key of a server, with this value, was probably to limit what the server may do.

    `similar` is what `similar_key` gives for it.
    """
    if similar in _LIMITING_KEYS:
        return not (value is True and re.fullmatch(_SWITCHES_ON, _letters(key)))
    # No key resembles it: an entry cannot say whether its server is trusted.
    return similar is None and "trust" in key.lower()


def remark(key: str, similar: str | None) -> str:
    """What to say about a key that nothing reads."""
    return f"the key {key!r} means nothing here" + ("" if similar is None else f"; did you mean {similar!r}?")


def _letters(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())
