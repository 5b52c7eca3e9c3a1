"""The tools of MCP servers for smolagents: `smolagents_tools`, and `refresh` for an agent whose tools change."""

from __future__ import annotations

import base64
import io
from typing import Any

from gaia.adapters.arguments import flat_properties, inlined_schema, without_nulls
from gaia.adapters.calls import Manager, listed, synchronous
from gaia.adapters.results import content_for_model, description_for_model, name_for_model, text_for_model
from gaia.mcp import MCPClientManager, MCPError, MCPTool

try:
    from PIL import Image
    from smolagents import Tool
except ImportError as error:
    raise ImportError("gaia.adapters.smolagents needs smolagents: pip install smolagents") from error


def smolagents_tools(manager: Manager, *, raise_errors: bool = False) -> list[MCPServerTool]:
    """The present tools of `manager`, for the `tools` of an agent; thread-safe.

    Their names have ``_`` instead of ``-``, because smolagents requires identifiers.

    A failure is a text for the model that begins with ``Error:``. With `raise_errors` it is an `MCPError` with this
    text, which ends the running code of a ``CodeAgent``. A ``ToolCallingAgent`` would then lose the results of the
    parallel calls, and tell the model to try again.
    """
    offered = {name_for_model(tool): tool for tool in listed(manager)}
    tools: dict[str, MCPServerTool] = {}
    for name, tool in offered.items():
        identifier = name.replace("-", "_")
        while identifier != name and (identifier in tools or identifier in offered):
            identifier += "_"
        tools[identifier] = MCPServerTool(synchronous(manager), tool, identifier, raise_errors=raise_errors)
    return list(tools.values())


def refresh(tools: dict[str, Tool], manager: Manager, *, raise_errors: bool = False) -> None:
    """Replace the tools of `manager` in an agent's ``tools`` with its present ones; other tools stay."""
    for name, tool in list(tools.items()):
        if isinstance(tool, MCPServerTool) and tool.manager is synchronous(manager):
            del tools[name]
    tools.update({tool.name: tool for tool in smolagents_tools(manager, raise_errors=raise_errors)})


class MCPServerTool(Tool):
    """A tool of a server.

    It returns the structured content if the server declares a schema, else an image or a text.
    """

    skip_forward_signature_validation = True
    output_type = "object"

    def __init__(self, manager: MCPClientManager, tool: MCPTool, name: str, *, raise_errors: bool) -> None:
        super().__init__()
        self.manager, self.tool, self.name, self.raise_errors = manager, tool, name, raise_errors
        self.description = description_for_model(tool)
        self.schema = inlined_schema(tool)
        self.inputs = flat_properties(self.schema)
        self.output_schema = tool.output_schema

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = without_nulls(self.schema, dict(zip(self.inputs, args, strict=False)) | kwargs)
        result = self.manager.call_tool(name_for_model(self.tool), arguments)
        text = text_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)
        if result.is_error:
            if self.raise_errors:
                raise MCPError(text, delivery=result.get("delivery", "unknown"))
            return text
        if self.output_schema is not None and result.structured is not None:
            return result.structured
        shown = content_for_model(result)
        if len(shown) > 1 or shown[0]["type"] != "image":
            return text
        try:
            image = Image.open(io.BytesIO(base64.b64decode(shown[0]["data"])))
            image.load()
        except (OSError, ValueError, Image.DecompressionBombError):
            return text
        return image
