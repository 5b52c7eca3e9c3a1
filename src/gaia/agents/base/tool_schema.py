"""The ``tools`` of a chat request, which describe the tools to a model.

A tool of an MCP server has its server's JSON Schema, unchanged. A native tool's schema is made from its registry entry
and the annotations of its function.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Schema = dict[str, Any]

_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_LENGTH = 64


def api_names(keys: Iterable[str]) -> dict[str, str]:
    """Registry keys by the names that chat endpoints accept for them.

    An acceptable key, such as an MCP tool's, is its own name. In other keys, ``_`` replaces forbidden characters, and a
    hash of the original is appended.
    """
    return {name_for_api(key): key for key in keys}


def name_for_api(key: str) -> str:
    if _ALLOWED.fullmatch(key):
        return key
    ending = "_" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return _NOT_ALLOWED.sub("_", key)[: _MAX_NAME_LENGTH - len(ending)] + ending


def tool_definition(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    description = str(entry.get("description") or "").strip()
    if name.startswith(f"mcp_{entry.get('_mcp_server')}_"):
        # The name already contains the server.
        description = description.removeprefix(f"[MCP:{entry['_mcp_server']}]").strip()
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": input_schema(entry)},
    }


def input_schema(entry: Mapping[str, Any]) -> Schema:
    """The JSON Schema of a tool's arguments, always for an object."""
    schema = entry.get("_mcp_input_schema")
    if not isinstance(schema, dict):
        schema = _native_schema(entry)
    # Endpoints require both members, which some servers leave out.
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        schema = {**schema, "type": "object", "properties": schema.get("properties") or {}}
    return schema


def _native_schema(entry: Mapping[str, Any]) -> Schema:
    function = entry.get("function")
    hints = type_hints(function) if callable(function) else {}
    declared = (_declared_parameters(function) if callable(function) else None) or {}
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


def takes_any_keyword(function: Callable[..., Any]) -> bool:
    """Whether the function takes any keyword, or does not declare its parameters."""
    parameters = _declared_parameters(function)
    return parameters is None or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _declared_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """The parameters by name; None for a function that does not declare them, such as one written in C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _property(about: Mapping[str, Any], hint: Any, declared: inspect.Parameter | None) -> Schema:
    schema = (schema_of(hint) if hint is not None else {}) or _schema_of_word(str(about.get("type") or "any"))
    if about.get("description"):
        schema["description"] = about["description"]
    # The default of a parameter without one is a class.
    if declared is not None and isinstance(declared.default, str | bool | int | float):
        schema["default"] = declared.default
    return schema


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; empty if one of them cannot be evaluated."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are the author's expressions, and need not mean anything at run time
        return {}


def schema_of(annotation: Any) -> Schema:
    """The JSON Schema for an annotation; empty if it allows any value, or if msgspec does not know it.

    A text in ``Annotated`` is the description.
    """
    try:
        (schema,), definitions = msgspec.json.schema_components([annotation])
    except Exception:  # noqa: BLE001 - annotations are the author's expressions, and need not mean anything at run time
        return {}
    texts = [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, str)]
    return {**_plain(schema, definitions), **({"description": texts[0]} if texts else {})}


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", types.NoneType: "null"}


def _plain(schema: Schema, definitions: Mapping[str, Schema], within: tuple[str, ...] = ()) -> Schema:
    """`schema` without references, with the members that endpoints require: types beside enums, and items of arrays."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in within:
            # A recursive type.
            return {}
        definition = {key: value for key, value in definitions[name].items() if key != "title"}
        return _plain(definition, definitions, (*within, name))
    plain = dict(schema)
    if "anyOf" in plain:
        plain["anyOf"] = [_plain(branch, definitions, within) for branch in plain["anyOf"]]
        return plain if all(plain["anyOf"]) else {}
    if "enum" in plain:
        plain["type"] = _one_or_all(dict.fromkeys(_JSON_TYPES[type(value)] for value in plain["enum"]))
    if "properties" in plain:
        plain["properties"] = {key: _plain(value, definitions, within) for key, value in plain["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(plain.get(key), dict):
            plain[key] = _plain(plain[key], definitions, within)
    return _with_items(plain)


def _schema_of_word(word: str) -> Schema:
    names = word.split("|")
    return {} if "any" in names else _with_items({"type": _one_or_all(names)})


def _one_or_all(names: Iterable[str]) -> str | list[str]:
    listed = list(names)
    return listed[0] if len(listed) == 1 else listed


def _with_items(schema: Schema) -> Schema:
    # Some endpoints do not support tuples, whose items msgspec describes one by one.
    unspecific = schema.get("type") == "array" and not isinstance(schema.get("items"), dict)
    return {"type": "array", "items": {}} if unspecific else schema
