"""Arguments of tools, for frameworks that cannot use the tools' JSON Schema directly. Thread-safe.

Some frameworks take a pydantic model, some take single properties, and some require every argument and allow null.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gaia.mcp import MCPTool

if TYPE_CHECKING:
    import pydantic

__all__ = ["accepts_null", "arguments_model", "flat_properties", "inlined_schema", "without_nulls"]

_TYPES = ("string", "number", "integer", "boolean", "array", "object")

_MAX_DEPTH = 64
_MAX_NODES = 10_000
"""The limits of an inlined schema. Schemas come from servers, and references can fan out."""
_RECURSIONS = 3


def inlined_schema(tool: MCPTool) -> dict[str, Any]:
    """The JSON Schema of the tool's arguments without references: each ``$ref`` is replaced by its target.

    It is always for an object, with ``properties``. A recursive ``$ref`` is replaced up to three levels deep, if the
    schema does not become too large. Below that, any value is permitted, and so it is for a dangling ``$ref`` or one to
    another document. If the schema becomes too large all the same, only the names of the properties stay. The server
    checks the arguments itself.
    """
    properties = tool.input_schema.get("properties")
    schema: dict[str, Any] = {"properties": {name: {} for name in properties} if isinstance(properties, dict) else {}}
    for levels in (_RECURSIONS, 1):
        with contextlib.suppress(_TooLarge):
            schema = _Inliner(tool.input_schema, levels).inlined(tool.input_schema, (), 0)
            break
    schema = {name: value for name, value in schema.items() if name not in ("$defs", "definitions")}
    for name, kind in (("properties", dict), ("required", list)):
        if not isinstance(schema.get(name), kind):
            schema[name] = kind()
    return schema | {"type": "object"}


def arguments_model(schema: Mapping[str, Any]) -> type[pydantic.BaseModel]:
    """A pydantic model that accepts any arguments unchanged, and describes itself with `schema`.

    The server checks the arguments. A model with a field for each argument would change them first: it would add null
    for missing ones, and refuse values that it cannot express.
    """
    import pydantic

    class Arguments(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return copy.deepcopy(dict(schema))

    return Arguments


def accepts_null(schema: object) -> bool:
    """Whether a property with this schema, which must have no references, may be null."""
    if not isinstance(schema, Mapping):
        return schema is True
    if "type" in schema:
        return schema["type"] == "null" or (isinstance(schema["type"], list) and "null" in schema["type"])
    if "const" in schema:
        return schema["const"] is None
    for keyword in ("enum", "anyOf", "oneOf"):
        if isinstance(alternatives := schema.get(keyword), list):
            return any(one is None if keyword == "enum" else accepts_null(one) for one in alternatives)
    return True


def without_nulls(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` without nulls that the `inlined_schema` does not allow."""
    properties, required = schema["properties"], schema["required"]
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or accepts_null(properties.get(name, True))
    }


def flat_properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of an `inlined_schema`, each with its ``type``, a ``description`` and, if optional, ``nullable``.

    A property with several types has a list of them; a property without a type has all types.
    """
    return {
        name: _flat(value if isinstance(value, Mapping) else {}, optional=name not in schema["required"])
        for name, value in schema["properties"].items()
    }


def _flat(schema: Mapping[str, Any], *, optional: bool) -> dict[str, Any]:
    anyof = schema.get("anyOf")
    branches = [one for one in anyof if isinstance(one, Mapping)] if isinstance(anyof, list) else []
    branches = [one for one in branches if one.get("type") != "null"]
    # A nullable value with one alternative counts as that alternative.
    flat = dict(branches[0]) if len(branches) == 1 else {}
    flat |= {name: value for name, value in schema.items() if name != "anyOf"}
    kinds = [_types(flat)] if "type" in flat else [_types(branch) for branch in branches]
    types = [kind for kind in _TYPES if any(kind in named for named in kinds)] if all(kinds) else []
    if "number" in types and len(types) > 1 and "integer" not in types:
        # Every integer is a number, but frameworks do not apply that within lists.
        types.append("integer")
    flat["type"] = types[0] if len(types) == 1 else types or list(_TYPES)
    flat["description"] = flat["description"] if isinstance(flat.get("description"), str) else ""
    if optional or accepts_null(schema):
        flat["nullable"] = True
    return flat


def _types(schema: Mapping[str, Any]) -> list[Any]:
    named = schema.get("type")
    return [named] if isinstance(named, str) else named if isinstance(named, list) else []


class _TooLarge(Exception):
    """A schema exceeds the limits when its references are inlined."""


class _Inliner:
    def __init__(self, root: dict[str, Any], levels: int) -> None:
        """`levels`: how often a reference is replaced within itself."""
        self._root = root
        self._levels = levels
        self._nodes = 0

    def inlined(self, node: Any, within: tuple[str, ...], depth: int) -> Any:
        """`within` are the references that led to `node`."""
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise _TooLarge
        if isinstance(node, list):
            return [self.inlined(one, within, depth + 1) for one in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if not isinstance(reference, str):
            # A property may have this name. Any other value is invalid for every framework.
            is_property = isinstance(reference, dict | bool)
            members = {name: value for name, value in node.items() if name != "$ref" or is_property}
            return {name: self.inlined(value, within, depth + 1) for name, value in members.items()}
        target = None if within.count(reference) >= self._levels else self._target(reference)
        rest = {name: self.inlined(value, within, depth + 1) for name, value in node.items() if name != "$ref"}
        if isinstance(target, dict):
            return self.inlined(target, (*within, reference), depth + 1) | rest
        return rest

    def _target(self, reference: str) -> object:
        if reference != "#" and not reference.startswith("#/"):
            return None
        here: Any = self._root
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            here = here.get(name) if isinstance(here, dict) else None
        return here
