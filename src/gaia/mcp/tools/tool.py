"""A tool as its server describes it, and as an agent's registry wants it."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.protocol.messages import says_safe_to_repeat
from gaia.mcp.tools.naming import namespaced
from gaia.mcp.tools.parameters import gaia_parameters


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
    """The JSON Schema of ``structuredContent``, if the server promises one."""
    annotations: dict[str, Any] = field(default_factory=dict)
    """The server's hints about the tool. Nothing enforces them: believe them as far as you trust the server."""
    title: str | None = None
    """A name for people."""
    server: str | None = None
    """The server's name, where the tool comes from a manager."""
    namespaced_name: str | None = None
    """The name that `MCPClientManager.call_tool` takes, where the tool comes from a manager."""
    definition: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole definition as the server has sent it; empty if the tool does not come from a listing."""

    @classmethod
    def from_listing(cls, mapping: object) -> MCPTool:
        """The tool that one entry of a ``tools/list`` answer describes.

        Servers leave out much; only a name is needed. Raises InvalidResponse if there is none.
        """
        if not isinstance(mapping, Mapping) or not isinstance(name := mapping.get("name"), str) or not name:
            raise InvalidResponse(
                f"tools/list: expected a tool with a name, got {reprlib.repr(mapping)}; the server has to give every "
                'tool a "name" that is a string'
            )
        description, title = mapping.get("description"), mapping.get("title")
        input_schema, output_schema = mapping.get("inputSchema"), mapping.get("outputSchema")
        annotations = mapping.get("annotations")
        return cls(
            name=name,
            description=description if isinstance(description, str) else "",
            input_schema=input_schema if isinstance(input_schema, dict) else {},
            output_schema=output_schema if isinstance(output_schema, dict) else None,
            annotations=annotations if isinstance(annotations, dict) else {},
            title=title if isinstance(title, str) else None,
            definition=mapping,
        )

    @functools.cached_property
    def safe_to_repeat(self) -> bool:
        """Whether the server says that a second call does no harm (``readOnlyHint`` or ``idempotentHint``)."""
        return says_safe_to_repeat(self.annotations)

    def to_gaia_format(self, server_name: str) -> dict[str, Any]:
        """The entry for an agent's ``_TOOL_REGISTRY``, without its function.

        ``_mcp_server`` and ``_mcp_tool_name`` keep the original names, whatever the registry's name had to become.
        """
        return {
            "name": namespaced(server_name, self.name),
            "description": f"[MCP:{server_name}] {self.description}",
            "parameters": gaia_parameters(self.input_schema),
            "atomic": True,
            "_mcp_server": server_name,
            "_mcp_tool_name": self.name,
        }
