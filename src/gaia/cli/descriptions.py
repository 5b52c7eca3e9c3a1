"""Lays out tools, resources and prompts of a server for people. All of the text comes from the server.

Long texts are wrapped at the terminal's width. An overview shows the beginning of each text, with an ellipsis for the
rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gaia.cli.rendering import plain_table
from gaia.cli.terminal import text
from gaia.runtime.untrusted_text import clean, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gaia.mcp.tools.tool import MCPTool

_MAX_DESCRIPTION = 300
_MAX_VALUE = 60


def tool_sections(tools: Iterable[tuple[MCPTool, bool]]) -> RenderableType:
    """Name, description and parameters of each tool. True marks a tool as blocked."""
    return _sections(
        [_name(tool, blocked=blocked), *_indented(_beginning(tool.description)), *_parameters(tool, limit=True)]
        for tool, blocked in tools
    )


def tool_details(tool: MCPTool, *, blocked: bool) -> RenderableType:
    from rich.console import Group

    hints = ", ".join(f"{name}: {json.dumps(value)}" for name, value in tool.annotations.items())
    schema = tool.output_schema
    return Group(
        _name(tool, blocked=blocked),
        *_indented(one_line(tool.title or "")),
        *_indented(clean(tool.description).strip()),
        *_parameters(tool, limit=False),
        *_indented(one_line(f"hints of the server: {hints}") if hints else ""),
        *_indented("" if schema is None else f"structured result: {json.dumps(schema, indent=2)}"),
    )


def resource_table(resources: Iterable[Mapping[str, Any]]) -> RenderableType:
    rows = (
        (
            one.get("uri", one.get("uriTemplate")),
            one.get("name"),
            one.get("mimeType"),
            _beginning(one.get("description")),
        )
        for one in resources
    )
    cells = ([one_line(word or "-") for word in row] for row in rows)
    return plain_table("uri", "name", "type", "description", rows=cells)


def prompt_sections(prompts: Iterable[Mapping[str, Any]]) -> RenderableType:
    sections = []
    for prompt in prompts:
        arguments = prompt.get("arguments")
        known = [one for one in arguments if isinstance(one, Mapping)] if isinstance(arguments, list) else []
        rows = [
            (one.get("name"), "required" if one.get("required") is True else "optional", one.get("description"))
            for one in known
        ]
        name = text(one_line(prompt.get("name")), "bold")
        sections.append([name, *_indented(_beginning(prompt.get("description"))), *_rows(rows)])
    return _sections(sections)


def _sections(sections: Iterable[list[RenderableType]]) -> RenderableType:
    from rich.console import Group

    shown = [line for section in sections for line in (text(""), *section)]
    return Group(*shown[1:])


def _name(tool: MCPTool, *, blocked: bool) -> RenderableType:
    return text(f"{one_line(tool.name)}{' (blocked)' if blocked else ''}", "red" if blocked else "bold")


def _parameters(tool: MCPTool, *, limit: bool) -> list[RenderableType]:
    from gaia.mcp.tools.tool import gaia_parameters

    def shown(*values: object) -> str:
        written = one_line(", ".join(json.dumps(value, ensure_ascii=False) for value in values))
        return f"{written[:_MAX_VALUE]}…" if limit and len(written) > _MAX_VALUE else written

    properties = tool.input_schema.get("properties")
    schemas = properties if isinstance(properties, Mapping) else {}
    rows = []
    for name, facts in gaia_parameters(tool.input_schema).items():
        schema = schemas.get(name)
        schema = schema if isinstance(schema, Mapping) else {}
        need = "required" if facts["required"] else "optional"
        if "default" in schema:
            need = f"default {shown(schema['default'])}"
        said = [_beginning(facts["description"]) if limit else one_line(facts["description"])]
        if isinstance(choices := schema.get("enum"), list):
            said.append(f"one of {shown(*choices)}")
        rows.append((name, facts["type"], need, "; ".join(filter(None, said))))
    return _rows(rows)


def _rows(rows: Sequence[Iterable[object]]) -> list[RenderableType]:
    """An indented table of up to four columns without a header; empty without rows."""
    from rich.padding import Padding

    cells = ([one_line(cell or "") for cell in row] for row in rows)
    return [Padding(plain_table("", "", "", "", rows=cells), (0, 0, 0, 4))] if rows else []


def _indented(words: str) -> list[RenderableType]:
    from rich.padding import Padding

    return [Padding(text(words), (0, 0, 0, 2), expand=False)] if words else []


def _beginning(description: object) -> str:
    """The first paragraph on one line, cut to `_MAX_DESCRIPTION` characters. An ellipsis marks omitted text."""
    whole = clean(description if isinstance(description, str) else "").strip()
    first = one_line(whole.partition("\n\n")[0])
    if len(first) > _MAX_DESCRIPTION:
        return f"{first[:_MAX_DESCRIPTION].rstrip()} …"
    return first if len(first) >= len(one_line(whole)) else f"{first} …"


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
