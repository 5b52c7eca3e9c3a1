"""Explains problems of a server's entry in terms of its JSON: wrong values and unknown keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

_LIMITING_KEYS = frozenset(
    ("enabledTools", "disabledTools", "pinTools", "sandbox", "disabled", "captureContent", "captureContentTools")
)
"""Keys that limit a server. A misspelt one is an error, because ignoring it would permit what the user forbids."""

_DENY = r"(deny|denied|disallow(ed)?|excluded?|block(ed)?|forbid(den)?|disabled?)"
_ALLOW = r"(allow(ed)?|included?|permit(ted)?|enabled?)"
_LIMITING_WORDS = (
    (r"(is)?(enabled?|active|disable)", "disabled"),
    (rf"{_DENY}(tools?|list)?|tools?{_DENY}|blacklist", "disabledTools"),
    (rf"{_ALLOW}(tools?|list)?|only(tools?|list)|tools?({_ALLOW}|only|filters?)?|whitelist", "enabledTools"),
    (r"pins?|pinned(tools?)?", "pinTools"),
    (r"sandbox\w*", "sandbox"),
)
"""Other programs' names for these keys: patterns for keys without case and punctuation. The first match counts."""

_SWITCHES_ON = r"(is)?(enabled?|active)"

_MAX_LENGTH = 64


def similar_key(key: str, known: Collection[str]) -> str | None:
    """The known key that `key` resembles most or is a synonym of; None if there is none."""
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
    """Whether an unknown key, with its `similar_key` and its value, was probably meant to limit the server."""
    if similar in _LIMITING_KEYS:
        return not (value is True and re.fullmatch(_SWITCHES_ON, _letters(key)))
    # No known key limits trust, so a key about trust has no counterpart here.
    return similar is None and "trust" in key.lower()


def remark(key: str, similar: str | None) -> str:
    return f"the key {key!r} means nothing here" + ("" if similar is None else f"; did you mean {similar!r}?")


def _letters(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())


# msgspec reports problems in terms of Python types and of its own paths. Users know JSON, so the text is translated.

_WORDS = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "a boolean",
    "array": "a list",
    "list": "a list",
    "object": "an object",
    "dict": "an object",
    "null": "null",
    "InProcessServer": "a server object, which no file can hold",
    "NoneType": "null",
}
_PLACE = r" - at (`key` in )?`\$(.*)`$"
_NOT_A_CHOICE = r"Invalid (?:enum )?value (.*)"
_UNKNOWN_FIELD = r"Object contains unknown field `([^`]*)`"
_MISSING_FIELD = r"Object missing required field `(.*)`"
_MISMATCH = r"Expected `([^`]*)`, got `([^`]*)`"


def explained(
    error: msgspec.ValidationError,
    mapping: Mapping[str, Any],
    choices_of: Mapping[str, tuple[str, ...]],
    strict: Mapping[str, type[msgspec.Struct]],
) -> str:
    """The message for an error that msgspec found in the entry `mapping`.

    `choices_of` maps places to their words, `strict` to the object types in which unknown keys are errors.
    """
    place = re.search(_PLACE, str(error))
    problem = re.sub(_PLACE, "", str(error))
    where = _resolve(place[2].removeprefix("."), mapping, choices_of) if place else ""
    if isinstance(error.__cause__, ValueError):
        # gaia's own check of a whole object. Its message begins with the field.
        field, _, problem = str(error.__cause__).partition(": ")
        where = f"{where}.{_camel(field)}".removeprefix(".")
    elif place and place[1]:
        problem = "the keys must be strings"
    elif (choices := _choices(where, choices_of)) and (match := re.fullmatch(_NOT_A_CHOICE, problem)):
        problem = f"expected one of {', '.join(choices)}, got {match[1]}"
    elif match := re.fullmatch(_MISMATCH, problem):
        expected = " or ".join(_WORDS.get(word, word) for word in match[1].split(" | "))
        if match[2] == "float":
            expected = expected.replace("a number", "a whole number")
        problem = f"expected {expected}, got {_WORDS.get(match[2], match[2])}"
    elif match := re.fullmatch(_UNKNOWN_FIELD, problem):
        known = strict[where].__struct_encode_fields__
        similar = similar_key(match[1], list(known))
        problem = remark(match[1], similar) + ("" if similar else f"; expected some of {', '.join(known)}")
    elif match := re.fullmatch(_MISSING_FIELD, problem):
        where = f"{where}.{match[1]}".removeprefix(".")
        choices = _choices(where, choices_of)
        problem = f"missing; expected one of {', '.join(choices)}" if choices else "missing"
    else:
        problem = problem[:1].lower() + problem[1:]
    return f"{where}: {problem}" if where else problem


def _choices(where: str, choices_of: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    return choices_of.get(where) or choices_of.get(where.partition(".")[0])


def _resolve(path: str, mapping: Mapping[str, Any], choices_of: Mapping[str, tuple[str, ...]]) -> str:
    """Find the key in ``env[...]``, because msgspec does not report which value of a dictionary is wrong."""
    where, dots, _ = path.partition("[...]")
    if not dots:
        return path
    choices = choices_of.get(where)
    wrong = (
        key
        for key, value in mapping[where].items()
        if not isinstance(value, str) or (choices is not None and value not in choices)
    )
    return f"{where}.{next(wrong)}"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def word_for(value: object) -> str:
    return _WORDS.get(type(value).__name__, type(value).__name__)
