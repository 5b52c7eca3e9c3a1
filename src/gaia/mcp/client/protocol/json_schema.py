"""JSON Schema as MCP wants it: 2020-12 unless the schema declares another dialect, and within bounds of work.

Schemas come from servers (specification 2026-07-28, "Base protocol", "JSON Schema"). So no reference leaves the
schema, nothing is ever fetched, and a check does a bounded amount of work, whatever the schema makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, cast

from gaia.mcp.client.protocol.patterns import steps_to_match

__all__ = ["JsonSchema", "SchemaUnusable"]

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

    def __init__(self, schema: Any) -> None:
        """Raises SchemaUnusable for what is no schema, or one of a dialect that is not supported."""
        # The import takes a tenth of a second, which only clients of servers with schemas have to spend.
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
        from referencing import Registry

        if not isinstance(schema, (dict, bool)):
            raise SchemaUnusable("it is neither an object nor a boolean")
        declared = schema.get("$schema") if isinstance(schema, dict) else None
        kind: Any = validators.Draft202012Validator
        if declared is not None:
            kind = validators.validator_for(schema, default=cast("Any", None))
        if kind is None:
            raise SchemaUnusable(f"its dialect {declared!r} is not supported")
        plain = _without_dialects(schema, _Size())
        try:
            kind.check_schema(plain)
        except SchemaError as error:
            raise SchemaUnusable(f"it is no valid schema: {_place(error)}{error.message[:200]}") from None
        except RecursionError:
            raise SchemaUnusable("it is too deeply nested") from None
        counting: Any = validators.extend(  # type: ignore[no-untyped-call]
            kind, {name: _counted(name, check) for name, check in kind.VALIDATORS.items()}
        )
        # A registry of our own, even an empty one, is what keeps jsonschema from fetching what it does not find.
        self._validator = counting(plain, registry=Registry(), format_checker=kind.FORMAT_CHECKER)

    def problems(self, value: Any) -> list[str]:
        """What is wrong with `value`, the first few things; empty if nothing is.

        Raises SchemaUnusable when that cannot be found out: a reference leads nowhere, or it would take too long.
        """
        from referencing.exceptions import Unresolvable

        token = _steps_left.set([_MAX_STEPS])
        try:
            found = []
            for error in self._validator.iter_errors(value):
                found.append(f"{_place(error)}{_shortened(error.message)}")
                if len(found) == _MAX_PROBLEMS:
                    break
            return found
        except Unresolvable as error:
            raise SchemaUnusable(f"it refers to {error.ref!r}, which is not in it; nothing is fetched") from None
        except RecursionError:
            raise SchemaUnusable("schema or value are too deeply nested") from None
        finally:
            _steps_left.reset(token)


class _Size:
    """How much of a schema has been seen."""

    def __init__(self) -> None:
        self.nodes = 0

    def enter(self, depth: int) -> None:
        self.nodes += 1
        if self.nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise SchemaUnusable(f"it has more than {_MAX_NODES} parts, or more than {_MAX_DEPTH} within one another")


def _without_dialects(node: Any, size: _Size, depth: int = 0) -> Any:
    """A copy without ``$schema``, which would make parts of the schema escape the counting."""
    size.enter(depth)
    if isinstance(node, dict):
        return {
            key: value if key in _VERBATIM else _without_dialects(value, size, depth + 1)
            for key, value in node.items()
            if key != "$schema" or not isinstance(value, str)
        }
    if isinstance(node, list):
        return [_without_dialects(item, size, depth + 1) for item in node]
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
    """What it costs to search a text with a pattern. Raises SchemaUnusable if nobody can tell."""
    steps = steps_to_match(pattern, len(text))
    if steps is None:
        raise SchemaUnusable(f"its pattern {pattern[:80]!r} repeats something that repeats, and could take for ever")
    return steps // _MATCHER_STEPS


def _place(error: Any) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    return f"{where}: " if where else ""


def _shortened(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:200]} … {message[-90:]}"
