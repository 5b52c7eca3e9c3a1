"""Finds secrets and binary data in recorded arguments and results, by their form and by their names."""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gaia.runtime.redaction import MASK, SECRET_WORDS

MAX_CHARACTERS: Final = 4096
"""Characters of JSON that are kept of a value."""
_SEARCHED_CHARACTERS = 16 * 1024
"""Characters of a text that are searched for secrets before it is cut: half a secret is not recognised."""

# Compiled on first use (`re` caches them), because most programs record no content.
_CONFIDENTIAL_KEY = f"(?i){SECRET_WORDS}"
_CONFIDENTIAL_TEXT = (
    r"\b(?:[Bb]earer|BEARER) [\w.~+/=-]{8,}"  # the value of an Authorization header
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON web token
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"
    r"|\bxox[abeoprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"  # user and password in a URL
)
# For example DB_PASSWORD=…, "clientSecret": "…", api-key: …; the name and the sign stay.
_ASSIGNMENT = (
    r"(?i)((?:passw|passphrase|secret|token(?!s)|(?:api|access|private)[_-]?key|credential)[\w-]{0,40}"
    r"[\"']?[ \t]{0,3}[=:][ \t]{0,3})(?:\"[^\"\n]{4,}\"|'[^'\n]{4,}'|[^\s\"',;&<>]{4,})"
)
_BINARY_KEYS = {"data", "blob"}
_MIN_BINARY = 64


def is_confidential(text: str) -> bool:
    return _may_have_form_of_secret(text) and re.fullmatch(_CONFIDENTIAL_TEXT, text.strip()) is not None


def masked(value: Any, redact: Callable[[str], str]) -> Any:
    """A copy of a JSON value without binary data and secrets (known ones by `redact`), cut near `MAX_CHARACTERS`."""
    return _Masking(redact).of(value)


def is_harmless(text: str, redact: Callable[[str], str]) -> bool:
    """Whether `masked` would leave plain JSON unchanged. False also if this search of the whole text cannot tell."""
    if "\\" in text:
        unescaped = _unescaped(text)
        if unescaped is None:
            return False
        text = unescaped
    if _may_sound_secret(_lowered(text)) or '"data":"' in text or '"blob":"' in text or redact(text) != text:
        return False
    return not _may_have_form_of_secret(text) or re.search(_CONFIDENTIAL_TEXT, text) is None


def _unescaped(text: str) -> str | None:
    parts = [
        part.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t").replace("\\r", "\r")
        for part in text.split("\\\\")
    ]
    return None if any("\\" in part for part in parts) else "\\".join(parts)


# Regular expressions that begin with alternatives, or ignore case, take about 0.1 µs a character. A search for a fixed
# part of each match takes a hundredth of that, and fails in most texts.


def _may_have_form_of_secret(text: str) -> bool:
    """False only if nothing in the text matches `_CONFIDENTIAL_TEXT`."""
    return (
        "eyJ" in text
        or ("k-" in text and ("sk-" in text or "pk-" in text or "rk-" in text))
        or ("k_" in text and ("sk_" in text or "pk_" in text or "rk_" in text))
        or ("gh" in text and re.search(r"gh[pousr]_|github_pat_", text) is not None)
        or "xox" in text
        or "AKIA" in text
        or "AIza" in text
        or "earer " in text
        or "EARER " in text
        or "PRIVATE KEY" in text
        or ("@" in text and "://" in text)
    )


def _may_sound_secret(lowered: str) -> bool:
    """False only if nothing in a `_lowered` text matches `_CONFIDENTIAL_KEY` or `_ASSIGNMENT`.

    True for "author", because a long name may be cut after "auth".
    """
    return (
        "secret" in lowered
        or "token" in lowered
        or "passw" in lowered
        or "passphrase" in lowered
        or "credential" in lowered
        or "auth" in lowered
        or "cookie" in lowered
        or "session" in lowered
        or "bearer" in lowered
        or ("key" in lowered and ("api" in lowered or "private" in lowered or "access" in lowered))
    )


def _lowered(text: str) -> str:
    """Lower case as regular expressions see it: they equate three letters of other alphabets with Latin ones."""
    if text.isascii():
        return text.lower()
    return text.replace("\u0130", "i").lower().replace("\u0131", "i").replace("\u017f", "s")


def _mask_confidential(text: str) -> str:
    if _may_have_form_of_secret(text):
        text = re.sub(_CONFIDENTIAL_TEXT, MASK, text)
    if ("=" in text or ":" in text) and _may_sound_secret(_lowered(text)):
        text = re.sub(_ASSIGNMENT, rf"\1{MASK}", text)
    return text


class _Masking:
    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._room = MAX_CHARACTERS

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (list, tuple)):
            return self._list(value)
        # `isinstance` with `Mapping` takes longer.
        if type(value) is dict or isinstance(value, Mapping):
            return self._object(value)
        self._room -= 8
        return value

    def _object(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for count, (key, member) in enumerate(value.items()):
            if self._room <= 0:
                kept["…"] = f"{len(value) - count} more"
                break
            name = self._text(str(key))
            # A limit such as `max_tokens` is not a secret.
            if _sounds_secret(name[:64]) and not isinstance(member, (bool, int, float, type(None))):
                kept[name] = MASK
            elif name in _BINARY_KEYS and (size := _binary_size(member)) is not None:
                kept[name] = f"({size} bytes)"
            else:
                kept[name] = self.of(member)
        return kept

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        kept: list[Any] = []
        for count, member in enumerate(value):
            if self._room <= 0:
                kept.append(f"… {len(value) - count} more")
                break
            kept.append(self.of(member))
        return kept

    def _text(self, text: str) -> str:
        searched = text[:_SEARCHED_CHARACTERS]
        masked = _mask_confidential(self._redact(searched))
        if len(text) > _SEARCHED_CHARACTERS:
            # A secret whose end was not searched may begin here.
            masked = masked[:-MAX_CHARACTERS]
        shown = masked[: max(0, self._room)]
        self._room -= len(shown) + 4
        complete = len(shown) == len(masked) and len(text) <= _SEARCHED_CHARACTERS
        return shown if complete else f"{shown}… ({len(text)} characters)"


@functools.lru_cache(maxsize=1024)
def _sounds_secret(name: str) -> bool:
    return _may_sound_secret(_lowered(name)) and re.search(_CONFIDENTIAL_KEY, name) is not None


def _binary_size(value: Any) -> int | None:
    """The bytes of a value that looks like base64; None for everything else."""
    if not isinstance(value, str) or len(value) < _MIN_BINARY:
        return None
    try:
        base64.b64decode(value[:_MIN_BINARY], validate=True)
    except (binascii.Error, ValueError):
        return None
    return len(value) * 3 // 4
