"""What a server's list of tools looks like to agents: definitions, schemas, names."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gaia.mcp.doctor.diagnosis import Check, failed, ok, skipped, warned
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.json_schema import JsonSchema, SchemaUnusable
from gaia.mcp.tools.naming import assign, namespaced
from gaia.mcp.tools.tool_catalog import size_within_limits

_SHOWN = 5
_AUTHORS = "Tell the authors of the server."


def names_of(definitions: Iterable[Any]) -> list[str]:
    """The names in a listing; entries without one are left out."""
    found = (tool.get("name") for tool in definitions if isinstance(tool, dict))
    return [name for name in found if isinstance(name, str) and name]


def check_schemas(definitions: Sequence[Any]) -> Check:
    """Whether models can be told about the tools: descriptions, and schemas that are JSON Schema."""
    if not definitions:
        return skipped("schemas", "no tools")
    broken = [problem for tool in definitions if (problem := _broken(tool)) is not None]
    if broken:
        return failed("schemas", _listed(broken), f"Agents cannot use what has no usable schema. {_AUTHORS}")
    silent = [str(tool["name"]) for tool in definitions if not _says_something(tool)]
    if silent:
        detail = f"without a description: {_listed(silent)}"
        return warned("schemas", detail, f"A model has to guess what they are for. {_AUTHORS}")
    return ok("schemas", f"{len(definitions)} valid, all with a description")


def check_names(server: str, definitions: Sequence[Any]) -> Check:
    """Whether each tool can be told from the others by a name that APIs of language models accept."""
    names = names_of(definitions)
    if not names:
        return skipped("names", "no tools")
    if doubled := [name for name, count in Counter(names).items() if count > 1]:
        return failed("names", f"listed more than once: {_listed(doubled)}", f"Only the last one counts. {_AUTHORS}")
    changed = [name for name in names if namespaced(server, name) != f"mcp_{server}_{name}"]
    if changed:
        shown = [f"{name} becomes {namespaced(server, name)}" for name in changed]
        reason = "Models take names of at most 64 letters, digits, _ and -"
        return warned("names", _listed(shown), f"{reason}. A shorter name for the server may help.")
    return ok("names", f"{len(names)} different")


def colliding(tools: Mapping[str, Sequence[str]]) -> dict[str, Check]:
    """For each server a check of the names that another server's tools have too. `tools` are names by server."""
    pairs = [(server, name) for server, names in tools.items() for name in dict.fromkeys(names)]
    final = {pair: name for name, pair in assign(pairs, tools.keys()).items()}
    found: dict[str, list[str]] = {}
    for server, name in pairs:
        if final[server, name] != namespaced(server, name):
            found.setdefault(server, []).append(f"{name} becomes {final[server, name]}")
    remedy = "A tool of another server would have the same name. Rename one of the servers."
    return {server: warned("names", _listed(shown), remedy) for server, shown in found.items()}


def _broken(tool: Any) -> str | None:
    """Why an entry of a listing cannot be used; None if it can."""
    if not isinstance(tool, dict) or not isinstance(name := tool.get("name"), str) or not name:
        return f"not a tool with a name: {reprlib.repr(tool)}"
    try:
        size_within_limits(tool)
    except InvalidResponse as error:
        return f"{reprlib.repr(name)}: {error.message}"
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return f"{name}: inputSchema is missing" if schema is None else f"{name}: inputSchema is not an object"
    # Specification, "Tools": the arguments are an object, and the schema says so.
    if schema.get("type") != "object":
        return f'{name}: inputSchema has no "type": "object"'
    for key in ("inputSchema", "outputSchema"):
        if tool.get(key) is not None:
            try:
                JsonSchema(tool[key])
            except SchemaUnusable as error:
                return f"{name}: {key} is no JSON Schema: {error}"
    return None


def _says_something(tool: Mapping[str, Any]) -> bool:
    description = tool.get("description")
    return isinstance(description, str) and bool(description.strip())


def _listed(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
