"""`quick_check`: whether a small value fits a common schema, decided in microseconds and without a thread.

A schema of the usual keywords becomes nested functions. `gaia.mcp.protocol.json_schema` decides everything else: other
keywords, large values, and the text of a problem. Both give the same verdict, which a property test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

QuickCheck = Callable[[Any], bool]
"""True if the value certainly fits. False if it does not, or if it is too large to say so quickly."""

_MAX_STEPS = 1_000
"""Members, items, references and alternatives in one check; a step takes about 0.2 µs."""

_DIALECTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
    }
)
_REFERRING = frozenset({"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema"})
"""Dialects in which keywords beside ``$ref`` count."""

_ANNOTATIONS = frozenset(
    {
        *("$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "discriminator"),
        *("example", "examples", "readOnly", "title", "writeOnly"),
    }
)


class _NotCommon(Exception):
    """The schema has a keyword that only the whole check knows."""


class _TooManySteps(Exception): ...


class _Steps:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MAX_STEPS

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _TooManySteps


_Part = Callable[[Any, _Steps], bool]


def quick_check(schema: Any, checked_formats: frozenset[str]) -> QuickCheck | None:
    """The check by a valid schema; None if the schema is not of the common kind."""
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    dialect = dialect.rstrip("#") if isinstance(dialect, str) else dialect
    if dialect is not None and dialect not in _DIALECTS:
        return None
    compiler = _Compiler(schema, dialect is None or dialect in _REFERRING, checked_formats)
    try:
        part = compiler.part(schema)
        compiler.finish()
    except (_NotCommon, RecursionError):
        return None

    def check(value: Any) -> bool:
        try:
            return part(value, _Steps())
        except (_TooManySteps, RecursionError):
            return False

    return check


class _Compiler:
    def __init__(self, root: Any, refers_beside: bool, checked_formats: frozenset[str]) -> None:
        self._root = root
        self._refers_beside = refers_beside
        self._checked_formats = checked_formats
        self._referred: dict[str, list[_Part]] = {}
        """The compiled definitions, by reference; a list is empty until its definition is compiled."""
        self._waiting: list[str] = []

    def finish(self) -> None:
        while self._waiting:
            reference = self._waiting.pop()
            self._referred[reference].append(self.part(self._definition(reference)))

    def _definition(self, reference: str) -> Any:
        _, _, place = reference.partition("#/")
        where, _, name = place.partition("/")
        definitions = self._root.get(where) if where in ("$defs", "definitions") else None
        # "~" and "%" would have to be decoded.
        if not isinstance(definitions, dict) or name not in definitions or set(name) & set("~%/"):
            raise _NotCommon
        return definitions[name]

    def part(self, schema: Any) -> _Part:
        if schema is True:
            return lambda _value, _steps: True
        if not isinstance(schema, dict):
            raise _NotCommon
        if schema is not self._root and "$schema" in schema:
            raise _NotCommon
        rules = [
            self._rule(keyword, value, schema)
            for keyword, value in schema.items()
            if keyword not in _ANNOTATIONS and not keyword.startswith("x-")
        ]
        found = tuple(rule for rule in rules if rule is not None)
        if len(found) == 1:
            return found[0]
        if len(found) == 2:
            first, second = found
            return lambda value, steps: first(value, steps) and second(value, steps)

        def all_of(value: Any, steps: _Steps) -> bool:
            for rule in found:  # noqa: SIM110 - `all` with a generator takes twice the time
                if not rule(value, steps):
                    return False
            return True

        return all_of

    def _rule(self, keyword: str, value: Any, schema: Mapping[str, Any]) -> _Part | None:
        if keyword == "type":
            return _of_types([value] if isinstance(value, str) else value)
        if keyword in _BOUNDS:
            return _BOUNDS[keyword](value)
        if keyword in ("properties", "additionalProperties", "required"):
            # The first of them makes the rule for all.
            mine = [name for name in schema if name in ("properties", "additionalProperties", "required")]
            return self._object(schema) if mine[0] == keyword else None
        if keyword == "items" and "prefixItems" not in schema and isinstance(value, (dict, bool)):
            return _items(self.part(value))
        if keyword == "enum":
            return _one_of_scalars(value)
        if keyword == "const":
            return _one_of_scalars([value])
        if keyword in ("anyOf", "allOf", "oneOf"):
            return _COMBINED[keyword]([self.part(each) for each in value])
        if keyword == "$ref" and (self._refers_beside or len(schema) == 1):
            return self._reference(value)
        if keyword == "format" and value not in self._checked_formats:
            return None
        raise _NotCommon

    def _reference(self, reference: str) -> _Part:
        self._definition(reference)
        if reference not in self._referred:
            self._referred[reference] = []
            self._waiting.append(reference)
        compiled = self._referred[reference]

        def referred(value: Any, steps: _Steps) -> bool:
            steps.take(1)
            return compiled[0](value, steps)

        return referred

    def _object(self, schema: Mapping[str, Any]) -> _Part:
        if "patternProperties" in schema:
            raise _NotCommon
        members = {name: self.part(part) for name, part in schema.get("properties", {}).items()}
        required = frozenset(schema.get("required", ()))
        others = schema.get("additionalProperties", True)
        other = self.part(others) if isinstance(others, dict) else None

        def fits(value: Any, steps: _Steps) -> bool:
            if not isinstance(value, dict):
                return True
            steps.take(len(value) + len(required))
            if not required <= value.keys():
                return False
            for name, item in value.items():
                part = members.get(name, other)
                if part is None:
                    if others is False:
                        return False
                elif not part(item, steps):
                    return False
            return True

        return fits


def _items(part: _Part) -> _Part:
    def fits(value: Any, steps: _Steps) -> bool:
        if not isinstance(value, list):
            return True
        steps.take(len(value))
        for item in value:  # noqa: SIM110 - `all` with a generator takes twice the time
            if not part(item, steps):
                return False
        return True

    return fits


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": _is_integer,
}


def _of_types(names: list[str]) -> _Part:
    if not set(names) <= _TYPES.keys():
        raise _NotCommon
    tests = [_TYPES[name] for name in names]
    if len(tests) == 1:
        test = tests[0]
        return lambda value, _: test(value)
    return lambda value, _: any(test(value) for test in tests)


def _one_of_scalars(values: list[Any]) -> _Part:
    if not all(value is None or isinstance(value, (str, int, float)) for value in values):
        raise _NotCommon
    # For JSON Schema, 1 equals 1.0, and does not equal true.
    known = frozenset((isinstance(value, bool), value) for value in values)
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)

    def fits(value: Any, _: _Steps) -> bool:
        if isinstance(value, str):
            # A long text is not hashed.
            return len(value) <= longest and (False, value) in known
        return (value is None or isinstance(value, (int, float))) and (isinstance(value, bool), value) in known

    return fits


def _any_of(parts: list[_Part]) -> _Part:
    def fits(value: Any, steps: _Steps) -> bool:
        for part in parts:
            steps.take(1)
            if part(value, steps):
                return True
        return False

    return fits


def _all_of(parts: list[_Part]) -> _Part:
    def fits(value: Any, steps: _Steps) -> bool:
        steps.take(len(parts))
        return all(part(value, steps) for part in parts)

    return fits


def _one_of(parts: list[_Part]) -> _Part:
    def fits(value: Any, steps: _Steps) -> bool:
        steps.take(len(parts))
        return sum(part(value, steps) for part in parts) == 1

    return fits


_COMBINED: dict[str, Callable[[list[_Part]], _Part]] = {"anyOf": _any_of, "allOf": _all_of, "oneOf": _one_of}

_BOUNDS: dict[str, Callable[[Any], _Part]] = {
    "minimum": lambda bound: lambda value, _: not _is_number(value) or value >= bound,
    "maximum": lambda bound: lambda value, _: not _is_number(value) or value <= bound,
    "exclusiveMinimum": lambda bound: lambda value, _: not _is_number(value) or value > bound,
    "exclusiveMaximum": lambda bound: lambda value, _: not _is_number(value) or value < bound,
    "minLength": lambda bound: lambda value, _: not isinstance(value, str) or len(value) >= bound,
    "maxLength": lambda bound: lambda value, _: not isinstance(value, str) or len(value) <= bound,
    "minItems": lambda bound: lambda value, _: not isinstance(value, list) or len(value) >= bound,
    "maxItems": lambda bound: lambda value, _: not isinstance(value, list) or len(value) <= bound,
    "minProperties": lambda bound: lambda value, _: not isinstance(value, dict) or len(value) >= bound,
    "maxProperties": lambda bound: lambda value, _: not isinstance(value, dict) or len(value) <= bound,
}
