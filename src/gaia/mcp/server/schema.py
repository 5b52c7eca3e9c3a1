"""JSON Schema: whether a tool's arguments, or its structured result, are what its definition says."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

__all__ = ["SchemaUnusable", "problems"]

SHOWN_PROBLEMS = 5
SHOWN_LENGTH = 300


class SchemaUnusable(Exception):
    """The schema itself is wrong, which is the agent author's business and not the client's."""


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with `value`, in words for the caller; empty if nothing is."""
    validator = _validator(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS))
    try:
        found = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
    except Unresolvable as error:
        # References into the network are not followed: the protocol forbids it, and so does good sense.
        raise SchemaUnusable(f"cannot resolve {error}") from None
    words = [_words(error) for error in found[:SHOWN_PROBLEMS]]
    if len(found) > SHOWN_PROBLEMS:
        words.append(f"and {len(found) - SHOWN_PROBLEMS} more")
    return words


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Validator:
    loaded = orjson.loads(schema)
    cls = validator_for(loaded, default=Draft202012Validator)
    try:
        cls.check_schema(loaded)
    except SchemaError as error:
        raise SchemaUnusable(error.message) from None
    return cls(loaded, registry=REGISTRY)


def _words(error: ValidationError) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    message = error.message if len(error.message) <= SHOWN_LENGTH else f"{error.message[:SHOWN_LENGTH]}…"
    return f"{where}: {message}" if where else message
