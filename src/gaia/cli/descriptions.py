"""Lays out tools, resources and prompts of a server for people. All of the text comes from the server.

Long texts are wrapped at the terminal's width. An overview shows the beginning of each text, with an ellipsis for the
rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gaia.cli.rendering import plain_table
from gaia.cli.terminal import text
from gaia.runtime.untrusted_text import clean, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gaia.mcp.tools.tool import MCPTool

_BEGINNING = 300
"""Most characters of a description in an overview."""

_VALUE = 60
"""Most characters of a default value or a list of choices in an overview."""


def tool_sections(tools: Iterable[tuple[MCPTool, bool]]) -> RenderableType:
    """Name, description and parameters of each tool. A tool that comes with True is marked as blocked."""
    from rich.console import Group

    shown: list[RenderableType] = []
    for tool, blocked in tools:
        shown += _gap(shown)
        shown.append(_name(tool, blocked=blocked))
        shown += _indented(_beginning(tool.description))
        shown += _parameters(tool, limit=True)
    return Group(*shown)


def tool_details(tool: MCPTool, *, blocked: bool) -> RenderableType:
    """Everything that the server says about a tool."""
    from rich.console import Group

    shown: list[RenderableType] = [_name(tool, blocked=blocked)]
    if tool.title is not None:
        shown += _indented(one_line(tool.title))
    shown += _indented(clean(tool.description).strip())
    shown += _parameters(tool, limit=False)
    hints = ", ".join(f"{name}: {json.dumps(value)}" for name, value in tool.annotations.items())
    shown += _indented(one_line(f"hints of the server: {hints}") if hints else "")
    if tool.output_schema is not None:
        shown += _indented(f"structured result: {json.dumps(tool.output_schema, indent=2)}")
    return Group(*shown)


def resource_table(resources: Iterable[Mapping[str, Any]]) -> RenderableType:
    """A table with one line for each resource or resource template."""
    table = plain_table("uri", "name", "type", "description")
    for resource in resources:
        uri = resource.get("uri", resource.get("uriTemplate"))
        words = (uri, resource.get("name"), resource.get("mimeType"), _beginning(resource.get("description")))
        table.add_row(*(text(one_line(word or "-")) for word in words))
    return table


def prompt_sections(prompts: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Name, description and arguments of each prompt."""
    from rich.console import Group

    shown: list[RenderableType] = []
    for prompt in prompts:
        shown += _gap(shown)
        shown.append(text(one_line(prompt.get("name")), "bold"))
        shown += _indented(_beginning(prompt.get("description")))
        arguments = prompt.get("arguments")
        known = [one for one in arguments if isinstance(one, Mapping)] if isinstance(arguments, list) else []
        shown += _rows(
            (one.get("name"), "required" if one.get("required") is True else "optional", one.get("description"))
            for one in known
        )
    return Group(*shown)


def _name(tool: MCPTool, *, blocked: bool) -> RenderableType:
    return text(f"{one_line(tool.name)}{' (blocked)' if blocked else ''}", "red" if blocked else "bold")


def _parameters(tool: MCPTool, *, limit: bool) -> list[RenderableType]:
    """A table of the tool's parameters: name, type, requirement or default, description."""
    from gaia.mcp.tools.tool import gaia_parameters

    properties = tool.input_schema.get("properties")
    schemas = properties if isinstance(properties, Mapping) else {}
    rows = []
    for name, facts in gaia_parameters(tool.input_schema).items():
        schema = schemas.get(name)
        schema = schema if isinstance(schema, Mapping) else {}
        need = "required" if facts["required"] else "optional"
        if "default" in schema:
            need = f"default {_cut(_json(schema['default']), limit=limit)}"
        choices = schema.get("enum")
        said = [_beginning(facts["description"]) if limit else one_line(facts["description"])]
        if isinstance(choices, list):
            said.append(f"one of {_cut(', '.join(map(_json, choices)), limit=limit)}")
        rows.append((name, facts["type"], need, "; ".join(filter(None, said))))
    return _rows(rows)


def _rows(rows: Iterable[Iterable[object]]) -> list[RenderableType]:
    """An indented table without a header; empty for no rows."""
    from rich.padding import Padding

    found = [[text(one_line(cell or "")) for cell in row] for row in rows]
    if not found:
        return []
    table = plain_table(*("" for _ in found[0]))
    table.show_header = False
    for row in found:
        table.add_row(*row)
    return [Padding(table, (0, 0, 0, 4))]


def _indented(words: str) -> list[RenderableType]:
    from rich.padding import Padding

    return [Padding(text(words), (0, 0, 0, 2), expand=False)] if words else []


def _gap(shown: list[RenderableType]) -> list[RenderableType]:
    """An empty line, unless it would be the first one."""
    return [text("")] if shown else []


def _beginning(description: object) -> str:
    """The first paragraph on one line, cut to `_BEGINNING` characters. An ellipsis marks omitted text."""
    whole = clean(description if isinstance(description, str) else "").strip()
    first = one_line(whole.partition("\n\n")[0])
    if len(first) > _BEGINNING:
        return f"{first[:_BEGINNING].rstrip()} …"
    return first if len(first) >= len(one_line(whole)) else f"{first} …"


def _json(value: object) -> str:
    return one_line(json.dumps(value, ensure_ascii=False))


def _cut(written: str, *, limit: bool) -> str:
    return f"{written[:_VALUE]}…" if limit and len(written) > _VALUE else written


def readable(block: Any) -> str:
    """One content block (specification, "Tool Result") as text. Binary content is described in brackets."""
    match block:
        case {"type": "text", "text": text}:
            return str(text)
        case {"type": "resource", "resource": {"text": text}}:
            return str(text)
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource {uri}]"
        case {"type": "resource_link", "uri": uri}:
            return f"[resource {uri}]"
        case {"type": "image" | "audio" as kind, "data": str(data), **others}:
            return _bytes(kind, data, others.get("mimeType"))
        case _:
            return json.dumps(block, ensure_ascii=False)


def readable_resource(content: Any) -> str:
    """One item of a resource's contents as text. Binary content is described in brackets."""
    match content:
        case {"text": text}:
            return str(text)
        case {"blob": str(blob), **others}:
            return _bytes("data", blob, others.get("mimeType"))
        case _:
            return json.dumps(content, ensure_ascii=False)


def _bytes(kind: str, base64: str, media_type: Any) -> str:
    # Four characters encode three bytes; each = at the end stands for one byte less.
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"[{kind}, {media_type or 'of unknown type'}, {size} bytes]"
