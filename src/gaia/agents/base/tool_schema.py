"""What a model is told about tools: the ``tools`` of a chat request.

A tool of an MCP server has the JSON Schema that its server gave, unchanged; a native one has a schema made of its
registry entry and the annotations of its function.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from gaia.agents.base.signatures import declared_parameters, takes_any_keyword

__all__ = ["api_names", "input_schema", "name_for_api", "tool_definition"]

Schema = dict[str, Any]

_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 64


def api_names(keys: Iterable[str]) -> dict[str, str]:
    """Registry keys by the names that chat endpoints accept for them.

    A key that is acceptable, as those of MCP tools are, is its own name. Any other has what is not allowed replaced by
    ``_``, and a hash of the original at the end.
    """
    return {name_for_api(key): key for key in keys}


def name_for_api(key: str) -> str:
    """One name of `api_names`."""
    if _ALLOWED.fullmatch(key):
        return key
    ending = "_" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return _NOT_ALLOWED.sub("_", key)[: _LONGEST - len(ending)] + ending


def tool_definition(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """One element of ``tools``."""
    description = str(entry.get("description") or "")
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": input_schema(entry)},
    }


def input_schema(entry: Mapping[str, Any]) -> Schema:
    """The JSON Schema of the arguments of a tool, always one of an object."""
    schema = entry.get("_mcp_input_schema")
    if not isinstance(schema, dict):
        schema = _native_schema(entry)
    # Endpoints insist on these two, and not every server writes them.
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        schema = {**schema, "type": "object", "properties": schema.get("properties") or {}}
    return schema


def _native_schema(entry: Mapping[str, Any]) -> Schema:
    function = entry.get("function")
    hints = _hints(function) if callable(function) else {}
    declared = (declared_parameters(function) if callable(function) else None) or {}
    parameters = entry.get("parameters") or {}
    schema: Schema = {
        "type": "object",
        "properties": {
            name: _property(about, hints.get(name), declared.get(name)) for name, about in parameters.items()
        },
        "required": [name for name, about in parameters.items() if about.get("required")],
    }
    if callable(function) and not takes_any_keyword(function):
        schema["additionalProperties"] = False
    return schema


def _property(about: Mapping[str, Any], hint: Any, declared: inspect.Parameter | None) -> Schema:
    schema = (schema_of(hint) if hint is not None else {}) or _schema_of_word(str(about.get("type") or "any"))
    if about.get("description"):
        schema["description"] = about["description"]
    # A parameter without a default has a class for one.
    if declared is not None and isinstance(declared.default, str | bool | int | float):
        schema["default"] = declared.default
    return schema


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are the author's expressions, and need not mean anything at run time
        return {}


_SCALARS: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}
_DEEPEST = 16


def schema_of(annotation: Any, depth: int = 0) -> Schema:
    """The JSON Schema of what an annotation allows; empty if it says nothing that JSON has a word for."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if depth > _DEEPEST:
        return {}
    if origin in {typing.Required, typing.NotRequired}:
        return schema_of(arguments[0], depth + 1)
    if origin is typing.Annotated:
        schema = schema_of(arguments[0], depth + 1)
        texts = [extra for extra in arguments[1:] if isinstance(extra, str)]
        return {**schema, "description": texts[0]} if texts else schema
    if origin in {typing.Union, types.UnionType}:
        branches = [schema_of(member, depth + 1) for member in arguments]
        return {"anyOf": branches} if all(branches) else {}
    if origin is Literal:
        return _enumerated(arguments)
    if isinstance(annotation, type) and annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    if typing.is_typeddict(annotation):
        return _object_of(annotation, depth)
    kind = origin or annotation
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, enum.Enum):
        return _enumerated([member.value for member in kind])
    if issubclass(kind, Mapping):
        values = schema_of(arguments[1], depth + 1) if len(arguments) == 2 else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if issubclass(kind, Iterable) and not issubclass(kind, str | bytes):
        same = len(arguments) == 1 or (len(arguments) == 2 and arguments[1] is ...)
        items = schema_of(arguments[0], depth + 1) if same else {}
        return {"type": "array", "items": items}
    return {}


def _enumerated(values: Iterable[Any]) -> Schema:
    listed = list(values)
    words = list(dict.fromkeys(_SCALARS.get(type(value), "") for value in listed))
    if not all(words):
        return {}
    return {"type": words[0] if len(words) == 1 else words, "enum": listed}


def _object_of(typed_dict: Any, depth: int) -> Schema:
    hints = _hints(typed_dict)
    optional = {name for name, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
    return {
        "type": "object",
        "properties": {name: schema_of(hint, depth + 1) for name, hint in hints.items()},
        # Python itself overlooks a NotRequired that is written in an annotation which is text.
        "required": sorted(typed_dict.__required_keys__ - optional),
    }


def _schema_of_word(word: str) -> Schema:
    """The schema of the registry's word for a type, such as ``string|integer``."""
    names = word.split("|")
    if "any" in names:
        return {}
    return {"type": names[0] if len(names) == 1 else names}
