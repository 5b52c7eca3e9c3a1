"""JSON Schema as MCP wants it: 2020-12 unless the schema declares another dialect; nothing is ever fetched.

Most schemas come from servers (specification 2026-07-28, "Base protocol", "JSON Schema"). A check by one of those does
a bounded amount of work, whatever the schema asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from itertools import count, islice
from typing import Any, cast

import orjson

__all__ = ["JsonSchema", "SchemaUnusable", "problems_by_own_schema", "steps_to_match"]

_MAX_NODES = 20_000
_MAX_DEPTH = 100
_MAX_STEPS = 200_000
"""How many keywords are evaluated, at most; takes a few seconds at worst."""
_MAX_PROBLEMS = 5
_MATCHER_STEPS = 100
"""So many steps of a regular expression's matcher take as long as one keyword."""

_VERBATIM = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose value is data, not schema."""

_MATCH_KEYS = frozenset(("patternProperties", "additionalProperties", "unevaluatedProperties"))
"""Keywords that match an object's keys with the patterns of ``patternProperties``."""

_steps_left: ContextVar[list[int]] = ContextVar("json_schema_steps_left")


class SchemaUnusable(ValueError):
    """Nothing can be said about a value by this schema; the message says why."""


class JsonSchema:
    """A schema that was checked and made ready. Thread-safe."""

    def __init__(self, schema: Any, *, trusted: bool = False) -> None:
        """`trusted` is for the application's own schemas: their work is not bounded, and formats are annotations only.

        Raises SchemaUnusable for what is no schema, or one of a dialect that is not supported.
        """
        # The import takes a tenth of a second, which only clients of servers with schemas have to spend.
        import attrs
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
        from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
        from referencing import Registry

        if not isinstance(schema, (dict, bool)):
            raise SchemaUnusable("it is neither an object nor a boolean")
        declared = schema.get("$schema") if isinstance(schema, dict) else None
        kind: Any = validators.Draft202012Validator
        if declared is not None:
            kind = validators.validator_for(schema, default=cast("Any", None))
        if kind is None:
            raise SchemaUnusable(f"its dialect {declared!r} is not supported")
        if not trusted:
            schema = _without_dialects(schema, count(1))
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            where = _place(error)
            raise SchemaUnusable(f"{error.message[:200]}{f' (at {where})' if where else ''}") from None
        except RecursionError:
            raise SchemaUnusable("it is too deeply nested") from None
        if trusted:
            # The registry of the dialects, which are in the package: without any, jsonschema fetches what it misses.
            self._validator = kind(schema, registry=REGISTRY)
        else:
            counting: Any = validators.extend(  # type: ignore[no-untyped-call]
                kind, {name: _counted(name, check) for name, check in kind.VALIDATORS.items()}
            )
            # Validators are attrs classes, whose own `evolve` changes to the class of a dialect that a part of the
            # schema declares or refers to. That class counts nothing.
            counting.evolve = attrs.evolve
            self._validator = counting(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)
        self._max_found = None if trusted else _MAX_PROBLEMS

    def problems(self, value: Any) -> list[str]:
        """What is wrong with `value`, the first few things; empty if nothing is.

        Raises SchemaUnusable when that cannot be found out: a reference leads nowhere, or it would take too long.
        """
        from referencing.exceptions import Unresolvable

        token = _steps_left.set([_MAX_STEPS])
        try:
            found = list(islice(self._validator.iter_errors(value), self._max_found))
        except Unresolvable as error:
            raise SchemaUnusable(f"it refers to {error.ref!r}, which is not in it; nothing is fetched") from None
        except RecursionError:
            raise SchemaUnusable("schema or value are too deeply nested") from None
        finally:
            _steps_left.reset(token)
        found.sort(key=lambda error: list(map(str, error.absolute_path)))
        more = len(found) - _MAX_PROBLEMS
        return [*map(_worded, found[:_MAX_PROBLEMS]), *([f"and {more} more"] if more > 0 else [])]


def problems_by_own_schema(schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with `value` by a schema of the application's own; what was made of the schema is kept.

    Raises SchemaUnusable.
    """
    return _own_schema(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)).problems(value)


@lru_cache(maxsize=512)
def _own_schema(schema: bytes) -> JsonSchema:
    return JsonSchema(orjson.loads(schema), trusted=True)


def _without_dialects(node: Any, parts: Iterator[int], depth: int = 0) -> Any:
    """A copy without ``$schema``: one dialect holds for the whole schema. `parts` counts what has been seen of it."""
    if next(parts) > _MAX_NODES or depth > _MAX_DEPTH:
        raise SchemaUnusable(f"it has more than {_MAX_NODES} parts, or more than {_MAX_DEPTH} within one another")
    if isinstance(node, dict):
        return {
            key: value if key in _VERBATIM else _without_dialects(value, parts, depth + 1)
            for key, value in node.items()
            if key != "$schema" or not isinstance(value, str)
        }
    if isinstance(node, list):
        return [_without_dialects(item, parts, depth + 1) for item in node]
    return node


Check = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


def _counted(name: str, check: Check) -> Check:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        left = _steps_left.get()
        left[0] -= _cost(name, value, instance, schema)
        if left[0] < 0:
            raise SchemaUnusable("the check takes too long")
        try:
            yield from check(validator, value, instance, schema) or ()
        except re.error as error:
            # Other languages' regular expressions are not all Python's.
            raise SchemaUnusable(f"its pattern cannot be used: {error}") from None

    return counted


def _cost(name: str, value: Any, instance: Any, schema: Any) -> int:
    if name == "pattern" and isinstance(instance, str):
        return 1 + _matching(value, instance)
    if name in _MATCH_KEYS and isinstance(instance, dict):
        patterns = schema.get("patternProperties") or ()
        return 1 + sum(_matching(pattern, key) for pattern in patterns for key in instance)
    if name == "uniqueItems" and isinstance(instance, list):
        # In the worst case each item is compared with each other one.
        return 1 + len(instance) ** 2 // 50
    return 1


def _matching(pattern: str, text: str) -> int:
    """What it costs to search a text with a pattern. Raises SchemaUnusable if that has no bound."""
    steps = steps_to_match(pattern, len(text))
    if steps is None:
        raise SchemaUnusable(f"its pattern {pattern[:80]!r} repeats something that repeats, and could take for ever")
    return steps // _MATCHER_STEPS


def _place(error: Any) -> str:
    where: str = error.json_path
    return where.removeprefix("$").removeprefix(".")


def _worded(error: Any) -> str:
    where, text = _place(error), error.message
    if len(text) > 300:
        text = f"{text[:200]} … {text[-90:]}"
    return f"{where}: {text}" if where else text


# Python's matcher tries alternatives one after the other, takes exponential time for some patterns, and cannot be
# interrupted meanwhile. So patterns are judged by their form before they are run, and rather too strictly than not
# strictly enough.
_PIECE = (
    r"\\."  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set
    r"|\((?:\?(?:P?<[=!]?|P=|P>|[:=!>]|#)?)?"  # the beginning of a group
    r"|\)|\|"
    r"|(?:[*+?]|\{\d*,?\d*\})[?+]?"  # a repetition
    r"|."
)
_REPETITION = r"[*+]|\{(\d*)(,?)(\d*)\}"
_MAX_CHOICES = 64


def steps_to_match(pattern: str, length: int) -> int | None:
    """Roughly how many steps a search in a text of `length` characters takes at worst; None if that has no bound.

    A text can be split between repetitions in as many ways as its length to the power of their number; each alternative
    doubles the ways; and the search begins anew at each character. What repeats something that can match in several
    ways has no bound.
    """
    repetitions, ways = 0, 1
    # For each open group, whether what is in it can match in several ways.
    varied = [False]
    # The same of the group that has just been closed, which the next piece may repeat.
    group: bool | None = None
    for piece in re.findall(_PIECE, pattern, re.DOTALL):
        if piece == ")":
            if len(varied) == 1:
                return None
            group = varied.pop()
            varied[-1] |= group
            continue
        if piece.startswith("("):
            varied.append(False)
        elif piece == "|" or piece.startswith("?"):
            ways *= 2
            varied[-1] = True
        elif _is_back_reference(piece):
            repetitions += 1
        elif repetition := re.match(_REPETITION, piece):
            least, comma, _ = repetition.groups(default="")
            if group:
                return None
            if group is not None:
                ways *= int(least[:9] or 1)
            if comma or not least:
                repetitions += 1
                varied[-1] = True
        group = None
    most = max(repetitions, ways.bit_length())
    return ways * (length + 1) ** (repetitions + 1) if most <= _MAX_CHOICES else None


def _is_back_reference(piece: str) -> bool:
    return piece == "(?P=" or (piece.startswith("\\") and piece[1:].isdigit())
