"""What is pinned of a tool: all that a model, or the person who confirms a call, is told about it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gaia.mcp.client.tool import MCPTool

__all__ = ["Definition", "Pin", "definition_of", "pin_of"]

Definition = dict[str, Any]
"""In the words of the protocol: name, title, description, inputSchema, outputSchema, annotations; what is empty is
left out."""


class Pin(msgspec.Struct, frozen=True):
    """One approved tool."""

    sha256: str
    """Of the canonical JSON of the definition, in hexadecimal. This is what counts."""
    definition: Definition
    """For people who want to see what has changed."""


def definition_of(tool: MCPTool) -> Definition:
    parts = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {key: value for key, value in parts.items() if value not in (None, "", {})}


def pin_of(tool: MCPTool) -> Pin:
    """The pin of a tool as it is now. The order of keys does not matter to it, everything else does."""
    import hashlib

    definition = definition_of(tool)
    # ASCII, so that what cannot be encoded (half of a surrogate pair) has a hash too.
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Pin(hashlib.sha256(canonical.encode()).hexdigest(), definition)
