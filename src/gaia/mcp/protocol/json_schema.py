"""JSON Schema for MCP: 2020-12 unless the schema declares another dialect; no schema is ever fetched.

Most schemas come from servers (specification 2026-07-28, "Base protocol", "JSON Schema"). A check by such a schema is
bounded in work and time, and matches patterns in linear time.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import orjson

from gaia.mcp.protocol.quick_check import QuickCheck, quick_check
from gaia.runtime.locks import import_apart

_MAX_PATTERN = 4000
_CLASS = re.compile(r"\\[dDsSwW]")
_MAX_CLASSES = 100
"""Limit for character classes such as digits, words and blanks. The time to compile grows with the square of their
number, and no other thread runs meanwhile: 4,900 classes took 15 s per attempt."""
_PATTERN_SIZES = tuple(1 << bits for bits in range(14, 21))
"""Bytes of a compiled pattern. The worst time of a search, per character, is proportional to this."""


@lru_cache(maxsize=128)
def linear_pattern(pattern: str) -> tuple[Callable[[str], bool], int] | None:
    """Compile a pattern: whether it occurs in a text, and the bytes under which it was compiled.

    None if it is invalid, too large, or needs more than linear time (look-ahead). Thread-safe.
    """
    import_apart("jsonschema_rs")
    import jsonschema_rs

    if len(pattern) > _MAX_PATTERN or len(_CLASS.findall(pattern)) > _MAX_CLASSES:
        return None
    for size in _PATTERN_SIZES:
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=size)
        with suppress(ValueError):
            return jsonschema_rs.validator_for({"pattern": str(pattern)}, pattern_options=options).is_valid, size
    return None


_MAX_PARTS = 20_000
_MAX_DEPTH = 100
_MAX_REFERENCE = 1000
"""Characters of ``$id``, ``$ref`` and the like, because each is joined with the enclosing ones."""

_MAX_WORK = 6_000_000
"""Units of work in one check; a unit takes about 0.2 µs."""
_MAX_SECONDS = 2.0
"""Processor time of the checking thread, in seconds: once to prepare a schema, and once for each value."""
_UNITS_BETWEEN_LOOKS = 2_000
"""Reading a thread's clock takes longer than a unit of work."""
_STEP = 10
"""Units for one part of a value, one applied schema, or one evaluated keyword."""
_PROBLEM = 200
"""Units for one problem, which takes 3 KB."""

_MAX_PROBLEMS = 5
_MAX_QUOTED = 30
"""Parts. A problem does not quote larger arrays and objects."""
_MAX_TEXT = 100

_VERBATIM = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose values are data, not schemas."""

_FORMATS = ("date", "email", "idn-email", "ipv4", "ipv6", "uuid")
"""Formats that take linear time and do not depend on other installed packages."""

_NOT_MONOTONIC = frozenset(("not", "oneOf", "if", "contains", "disallow"))
"""Keywords that may refuse a value because a part of the schema permits it."""

_current_check: ContextVar[_Check] = ContextVar("json_schema_check")


class SchemaUnusable(ValueError):
    """The schema cannot judge the value; the message says why."""


class CheckGivenUp(SchemaUnusable):
    """The check of one value would take too long, or the value is nested too deep. Other values may pass."""


class JsonSchema:
    def __init__(
        self, schema: Any, *, trusted: bool = False, on_skipped: Callable[[str], object] | None = None
    ) -> None:
        """`trusted` is for the application's own schemas: their work is not bounded, and formats are annotations only.

        `on_skipped` receives the description of the first part of the schema that cannot be checked in bounded time,
        once; values count as fitting such parts.

        Raises SchemaUnusable for an invalid schema, or one of an unsupported dialect.
        """
        # The import takes a tenth of a second, so only clients of servers with schemas pay for it.
        import_apart("jsonschema", "jsonschema_specifications")
        from jsonschema import validators
        from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

        if not isinstance(schema, (dict, bool)):
            raise SchemaUnusable("it is neither an object nor a boolean")
        declared = schema.get("$schema") if isinstance(schema, dict) else None
        kind: Any = validators.Draft202012Validator
        if declared is not None:
            kind = validators.validator_for(schema, default=cast("Any", None))
        if kind is None:
            raise SchemaUnusable(f"its dialect {str(declared)[:_MAX_TEXT]!r} is not supported")
        self._trusted = trusted
        self._on_skipped = on_skipped
        with self._bounded() as check:
            if trusted:
                # The package contains the registry of dialects; without it, jsonschema would fetch them.
                meta = kind(kind.META_SCHEMA, registry=REGISTRY, format_checker=kind.FORMAT_CHECKER)
            else:
                schema, meta = _measured(_without_dialects(schema), check), _of_dialect(kind)
            for error in meta.iter_errors(schema):
                raise SchemaUnusable(_worded(error))
            self._validator = kind(schema, registry=REGISTRY) if trusted else _counting_validator(kind, schema)
        self.quick: QuickCheck | None = None
        """Decides about small values without the whole check; None if the schema is trusted or not a common one."""
        if not trusted:
            dialect = {} if declared is None or not isinstance(schema, dict) else {"$schema": declared}
            self.quick = quick_check({**schema, **dialect} if isinstance(schema, dict) else schema, frozenset(_FORMATS))

    def problems(self, value: Any) -> list[str]:
        """The first few problems of `value`; empty if there are none.

        Raises SchemaUnusable if a reference leads nowhere, and CheckGivenUp if the check would take too long.
        """
        with self._bounded() as check:
            if self._trusted:
                found = list(self._validator.iter_errors(value))
            else:
                found = list(islice(self._validator.iter_errors(_measured(value, check)), _MAX_PROBLEMS))
        found.sort(key=lambda error: list(map(str, error.absolute_path)))
        more = len(found) - _MAX_PROBLEMS
        return [*map(_worded, found[:_MAX_PROBLEMS]), *([f"and {more} more"] if more > 0 else [])]

    @contextmanager
    def _bounded(self) -> Iterator[_Check]:
        from referencing.exceptions import Unresolvable

        check = _Check(math.inf if self._trusted else _MAX_WORK, self._skipped)
        token = _current_check.set(check)
        try:
            yield check
        except SchemaUnusable:
            raise
        except Unresolvable as error:
            raise SchemaUnusable(f"it refers to {error.ref!r}, which is not in it; nothing is fetched") from None
        except RecursionError:
            raise CheckGivenUp("schema or value are too deeply nested") from None
        except Exception as error:  # noqa: BLE001 - if a reference leads to no schema, jsonschema may raise any exception
            raise SchemaUnusable(f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}") from None
        except BaseException as error:
            # Not an `Exception`: jsonschema's Rust code panics at the recursion limit.
            if type(error).__name__ == "PanicException":
                raise CheckGivenUp("schema or value are too deeply nested") from None
            raise
        finally:
            _current_check.reset(token)

    def _skipped(self, what: str) -> None:
        told, self._on_skipped = self._on_skipped, None
        if told is not None:
            told(what)


def problems_by_own_schema(schema: dict[str, Any], value: Any) -> list[str]:
    """The problems of `value` by one of the application's own schemas, which are cached. Raises SchemaUnusable."""
    return _own_schema(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)).problems(value)


@lru_cache(maxsize=512)
def _own_schema(schema: bytes) -> JsonSchema:
    return JsonSchema(orjson.loads(schema), trusted=True)


class _Check:
    """The work of one check. Belongs to the checking thread."""

    def __init__(self, work: float, skipped: Callable[[str], None]) -> None:
        self._left = self._look_at = work
        """Units of work left, and the value below which the clock is read next."""
        self._end = time.thread_time() + _MAX_SECONDS
        self._skipped = skipped
        self.is_complete = True

    def spend(self, work: int) -> None:
        self._left -= work
        if self._left < self._look_at:
            # At the end of the work, the clock is read at each call.
            self._look_at = max(0, self._left - _UNITS_BETWEEN_LOOKS)
            if self._left < 0 or time.thread_time() > self._end:
                raise CheckGivenUp("the check takes too long")

    def skip(self, what: str) -> None:
        self.is_complete = False
        self._skipped(what)


# Values are copied into types that know their size and quote themselves briefly: jsonschema quotes the wrong value in
# each of its problems, including all alternatives of an `anyOf`.


class _Array(list[Any]):
    __slots__ = ("size",)

    size: int

    def __repr__(self) -> str:
        return super().__repr__() if self.size <= _MAX_QUOTED else f"[… {len(self)} items …]"


class _Object(dict[Any, Any]):
    __slots__ = ("size",)

    size: int

    def __repr__(self) -> str:
        return super().__repr__() if self.size <= _MAX_QUOTED else f"{{… {len(self)} members …}}"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self[: _MAX_TEXT - 20]!r}…{self[-10:]!r}"


def _measured(value: Any, check: _Check) -> Any:
    if isinstance(value, str):
        if len(value) <= _MAX_TEXT:
            return value
        check.spend(len(value) // 64)
        return _Text(value)
    copy: _Array | _Object
    if isinstance(value, dict):
        check.spend(_STEP * (1 + len(value)))
        copy = _Object((_measured(key, check), _measured(part, check)) for key, part in value.items())
        copy.size = 1 + sum(_size(key) + _size(part) for key, part in copy.items())
        return copy
    if isinstance(value, list):
        check.spend(_STEP * (1 + len(value)))
        copy = _Array(_measured(part, check) for part in value)
        copy.size = 1 + sum(map(_size, copy))
        return copy
    return value


def _size(value: Any) -> int:
    if isinstance(value, str):
        return 1 + len(value) // 64
    size: int = getattr(value, "size", 1)
    return size


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // 64
    return len(value) if isinstance(value, (list, dict)) else 0


def _without_dialects(schema: Any) -> Any:
    """A copy without ``$schema``: one dialect holds for the whole schema. Raises SchemaUnusable if it is huge."""
    parts = 0

    def copied(node: Any, depth: int, *, is_data: bool = False) -> Any:
        nonlocal parts
        parts += 1
        if parts > _MAX_PARTS or depth > _MAX_DEPTH:
            raise SchemaUnusable(f"it has more than {_MAX_PARTS} parts, or more than {_MAX_DEPTH} within one another")
        if isinstance(node, list):
            return [copied(item, depth + 1, is_data=is_data) for item in node]
        if not isinstance(node, dict):
            return node
        for key in ("$id", "id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor"):
            if isinstance(node.get(key), str) and len(node[key]) > _MAX_REFERENCE:
                raise SchemaUnusable(f"its {key} has more than {_MAX_REFERENCE} characters")
        return {
            key: copied(value, depth + 1, is_data=is_data or key in _VERBATIM)
            for key, value in node.items()
            if is_data or key != "$schema" or not isinstance(value, str)
        }

    return copied(schema, 0)


def _counting_validator(kind: Any, schema: Any) -> Any:
    from jsonschema import FormatChecker
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import specification_with

    counting = _counting_class(kind)
    resource = specification_with(kind.ID_OF(kind.META_SCHEMA)).create_resource(schema)
    base = resource.id() or ""
    # Without the crawl, jsonschema searches the registry again for each reference to an anchor or an id.
    registry = REGISTRY.with_resource(base, resource).crawl()
    return counting(schema, format_checker=FormatChecker(_FORMATS), _resolver=registry.resolver(base))


@lru_cache(maxsize=16)
def _of_dialect(kind: Any) -> Any:
    return _counting_validator(kind, kind.META_SCHEMA)


@lru_cache(maxsize=16)
def _counting_class(kind: Any) -> Any:
    import attrs
    from jsonschema import validators

    counting: Any = validators.extend(  # type: ignore[no-untyped-call]
        kind, {name: _counted(name, _SAFE.get(name, check)) for name, check in kind.VALIDATORS.items()}
    )
    # Validators are attrs classes, and their own `evolve` changes to the class of a dialect that a part of the schema
    # declares or refers to. That class would not count.
    counting.evolve = attrs.evolve
    counting.descend = _counted_descend(kind.descend)
    return counting


Keyword = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


def _counted(name: str, keyword: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        check = _current_check.get()
        check.spend(_STEP + _length(value) + _length(instance) + _comparisons(name, value, instance))
        for error in keyword(validator, value, instance, schema) or ():
            if name in _NOT_MONOTONIC and not check.is_complete:
                raise SchemaUnusable("a part of it that cannot be checked decides")
            yield error

    return counted


def _comparisons(name: str, value: Any, instance: Any) -> int:
    if name == "const":
        return min(_size(value), _size(instance))
    if name == "enum":
        return min(_size(value), len(value) * _size(instance))
    if name == "uniqueItems" and value and isinstance(instance, list):
        # jsonschema sorts strings and numbers, and compares other items pairwise.
        sortable = all(isinstance(item, str) for item in instance) or {*map(type, instance)} <= {int, float}
        return _size(instance) * (_STEP if sortable else len(instance))
    return 0


def _counted_descend(descend: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def counted(validator: Any, instance: Any, schema: Any, *args: Any, **options: Any) -> Iterator[Any]:
        check = _current_check.get()
        check.spend(_STEP)
        for error in descend(validator, instance, schema, *args, **options):
            check.spend(_PROBLEM + len(error.message) // 16)
            yield error

    return counted


# Replacements for keywords that jsonschema evaluates with Python's `re`, which takes exponential time for some patterns
# and cannot be interrupted, or with lists that it searches again and again.


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001 - as jsonschema calls it
    from jsonschema import ValidationError

    if validator.is_type(instance, "string") and _matches(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            for key, value in instance.items():
                if _matches(pattern, key):
                    yield from validator.descend(value, part, path=key, schema_path=pattern)


def _additional_properties(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(instance, "object"):
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for key, value in instance.items():
            if key in known or any(_matches(pattern, key) is not False for pattern in patterns):
                continue
            if part is False:
                yield ValidationError(f"Additional properties are not allowed ({key!r} was unexpected)")
            else:
                yield from validator.descend(value, part, path=key)


def _unevaluated(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
    """Skip the keyword: jsonschema would go through all other parts of the schema without counting."""
    _current_check.get().skip("unevaluatedItems and unevaluatedProperties")
    return iter(())


_SAFE: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated,
    "unevaluatedItems": _unevaluated,
}


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern occurs in a text, by the rules of ECMA 262; None if linear time does not suffice."""
    check = _current_check.get()
    compiled = linear_pattern(pattern)
    if compiled is None:
        check.skip(f"the pattern {pattern!r}")
        return None
    occurs_in, size = compiled
    check.spend(_STEP + len(text) * size // 4096)
    # `occurs_in` takes no subclasses of str.
    return occurs_in(str(text))


def _worded(error: Any) -> str:
    where, text = (
        f"{part[:200]} … {part[-90:]}" if len(part) > 300 else part
        for part in (error.json_path.removeprefix("$").removeprefix("."), error.message)
    )
    return f"{where}: {text}" if where else text
