"""`MCPTool`: a tool as its server describes it, and its parameters for an agent's registry."""

from __future__ import annotations

import functools
import reprlib
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.messages import says_safe_to_repeat
from gaia.mcp.tools.naming import namespaced

# A GAIA parameter has one line for its type, so most of a schema is left out here; the server still checks all of it.
# Schemas come from servers: a malformed one never raises, and none can make this recurse or run for ever.
#
# The rules for `type`, first match wins:
#
# 1. `type` as written. Several types are joined with `|` (`string|integer`); `null` is dropped beside others, because
#    whether a parameter may be left out is what `required` says.
# 2. `$ref`: the type of what it points to. Only pointers into the same schema are followed; behind any other, and
#    behind one that points nowhere, there may be anything: `any`.
# 3. `const`, `enum`: the types of the values.
# 4. `anyOf`, `oneOf`: the types of all branches. `allOf`: the types that all branches share.
# 5. `properties` means `object`, `items` means `array`.
# 6. Where nothing is said, `string`.

_MAX_DEPTH = 32
_MAX_STEPS = 20_000
"""Subschemas visited for a tool's properties, and again for their types. Depth is no bound: references fan out."""

_ANY = "any"
_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_KEYWORDS = {"object": ("properties", "additionalProperties", "patternProperties"), "array": ("items", "prefixItems")}


def gaia_parameters(schema: object) -> dict[str, dict[str, Any]]:
    """The parameters of a tool with this ``inputSchema``: ``{name: {"type", "required", "description"}}``.

    Properties come from the schema itself, from its ``$ref`` and ``allOf`` parts, and, never required, from its
    ``anyOf`` and ``oneOf`` branches. A property whose schema is ``false`` is left out.
    """
    reader = _Reader(schema)
    found: dict[str, dict[str, Any]] = {}
    required: set[str] = set()
    for part, optional in reader.objects():
        names = part.get("required")
        if isinstance(names, list) and not optional:
            required.update(name for name in names if isinstance(name, str))
        properties = part.get("properties")
        if not isinstance(properties, Mapping):
            continue
        for name, value in properties.items():
            if isinstance(name, str) and name not in found and value is not False:
                found[name] = {"type": reader.type_of(value), "description": reader.description_of(value)}
    return {
        name: {"type": facts["type"], "required": name in required, "description": facts["description"]}
        for name, facts in found.items()
    }


class _Reader:
    def __init__(self, root: object) -> None:
        self._root = root
        self._steps = _MAX_STEPS

    def objects(self) -> list[tuple[Mapping[str, Any], bool]]:
        """The schemas that make up the root, each with whether it is one of several alternatives."""
        found = list(self._objects(self._root, optional=False, depth=0))
        self._steps = _MAX_STEPS
        return found

    def _objects(self, schema: object, *, optional: bool, depth: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
        if not isinstance(schema, Mapping) or self._exhausted(depth):
            return
        yield schema, optional
        if "$ref" in schema:
            yield from self._objects(self._target(schema["$ref"]), optional=optional, depth=depth + 1)
        for branch in _branches(schema, "allOf"):
            yield from self._objects(branch, optional=optional, depth=depth + 1)
        for branch in (*_branches(schema, "anyOf"), *_branches(schema, "oneOf")):
            yield from self._objects(branch, optional=True, depth=depth + 1)

    def type_of(self, schema: object) -> str:
        types = self._types(schema, depth=0)
        if _ANY in types:
            return _ANY
        return "|".join([name for name in types if name != "null"] or types) or "string"

    def _types(self, schema: object, *, depth: int) -> list[str]:
        if not isinstance(schema, Mapping) or self._exhausted(depth):
            return []
        named = schema.get("type")
        found = [name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str) and name]
        if not found and "$ref" in schema:
            target = self._target(schema["$ref"])
            found = [_ANY] if target is None else self._types(target, depth=depth + 1)
        if not found:
            values = [schema["const"]] if "const" in schema else schema.get("enum")
            found = [_TYPES.get(type(value), "object") for value in values] if isinstance(values, list) else []
        found = found or self._types_of_branches(schema, depth=depth)
        shapes = [word for word, keywords in _KEYWORDS.items() if any(keyword in schema for keyword in keywords)]
        return list(dict.fromkeys(found)) or shapes[:1]

    def _types_of_branches(self, schema: Mapping[str, Any], *, depth: int) -> list[str]:
        alternatives = (*_branches(schema, "anyOf"), *_branches(schema, "oneOf"))
        found = [name for branch in alternatives for name in self._types(branch, depth=depth + 1)]
        if found:
            return found
        for branch in _branches(schema, "allOf"):
            types = self._types(branch, depth=depth + 1)
            # Branches that exclude each other admit no value at all, so any of their types will do.
            found = [name for name in found if name in types] or found or types
        return found

    def description_of(self, schema: object) -> str:
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, Mapping):
                break
            description = schema.get("description")
            if isinstance(description, str):
                return description
            if "$ref" not in schema:
                break
            schema = self._target(schema["$ref"])
        return ""

    def _exhausted(self, depth: int) -> bool:
        self._steps -= 1
        return self._steps < 0 or depth > _MAX_DEPTH

    def _target(self, reference: object) -> object:
        """Resolve a JSON pointer (RFC 6901) into the same schema; None if it fails. Nothing is fetched."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        here: Any = self._root
        for part in urllib.parse.unquote(reference).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and key in here:
                here = here[key]
            elif isinstance(here, list) and key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(here):
                here = here[int(key)]
            else:
                return None
        return here


def _branches(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    branches = schema.get(keyword)
    return branches if isinstance(branches, list) else []


@dataclass(frozen=True)
class MCPTool:
    """One tool of one server. The dictionaries are the server's; treat them as read-only."""

    name: str
    """The tool's own name, which `MCPClient.call_tool` takes."""
    description: str
    """The server's text for models; empty if it has none. It is as trustworthy as the server."""
    input_schema: dict[str, Any]
    """The JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of ``structuredContent``, if the server declares one."""
    annotations: dict[str, Any] = field(default_factory=dict)
    """The server's hints about the tool. Nothing enforces them; trust them as far as you trust the server."""
    title: str | None = None
    """A name for people."""
    server: str | None = None
    """The server's name, if the tool comes from a manager."""
    namespaced_name: str | None = None
    """The name for `MCPClientManager.call_tool`, if the tool comes from a manager."""
    definition: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole definition as the server sent it; empty if the tool does not come from a listing."""

    @functools.cached_property
    def safe_to_repeat(self) -> bool:
        """Whether the server declares that a second call does no harm (``readOnlyHint`` or ``idempotentHint``)."""
        return says_safe_to_repeat(self.annotations)

    def to_gaia_format(self, server_name: str) -> dict[str, Any]:
        """The entry for an agent's ``_TOOL_REGISTRY``, without its function. It keeps the original names."""
        return {
            "name": namespaced(server_name, self.name),
            "description": f"[MCP:{server_name}] {self.description}",
            "parameters": gaia_parameters(self.input_schema),
            "atomic": True,
            "_mcp_server": server_name,
            "_mcp_tool_name": self.name,
        }


def tool_from_listing(mapping: object) -> MCPTool:
    """The tool that an entry of a ``tools/list`` answer describes. Raises InvalidResponse if it has no name."""
    if not isinstance(mapping, Mapping) or not isinstance(name := mapping.get("name"), str) or not name:
        raise InvalidResponse(
            f"tools/list: expected a tool with a name, got {reprlib.repr(mapping)}; the server has to give every "
            'tool a "name" that is a string'
        )
    description, title = mapping.get("description"), mapping.get("title")
    input_schema, output_schema = mapping.get("inputSchema"), mapping.get("outputSchema")
    annotations = mapping.get("annotations")
    return MCPTool(
        name=name,
        description=description if isinstance(description, str) else "",
        input_schema=input_schema if isinstance(input_schema, dict) else {},
        output_schema=output_schema if isinstance(output_schema, dict) else None,
        annotations=annotations if isinstance(annotations, dict) else {},
        title=title if isinstance(title, str) else None,
        definition=mapping,
    )
