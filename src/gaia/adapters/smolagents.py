"""The tools of MCP servers for smolagents: `smolagents_tools`, and `refresh` for an agent whose tools change."""

from __future__ import annotations

import base64
import io
from typing import Any, Unpack

from gaia.adapters.arguments import flat_properties, inlined_schema, without_nulls
from gaia.adapters.results import content_for_model, description_for_model, name_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPError, MCPTool

try:
    from PIL import Image
    from smolagents import Tool
except ImportError as error:
    raise ImportError("gaia.adapters.smolagents needs smolagents: pip install smolagents") from error


def smolagents_tools(
    manager: Manager, *, raise_errors: bool = False, **selection: Unpack[SelectionKeywords]
) -> list[MCPServerTool]:
    """The present tools of `manager`, for the `tools` of an agent; thread-safe.

    `selection` says which tools; see `ToolSelection`. Their names have ``_`` instead of ``-``, because smolagents
    requires identifiers.

    A failure is a text for the model that begins with ``Error:``. With `raise_errors` it is an `MCPError` with this
    text, which ends the running code of a ``CodeAgent``. A ``ToolCallingAgent`` would then lose the results of the
    parallel calls, and tell the model to try again.
    """
    return [*ToolSelection.of(manager, **selection).cached(_tools, raise_errors)]


def refresh(
    tools: dict[str, Tool], manager: Manager, /, *, raise_errors: bool = False, **selection: Unpack[SelectionKeywords]
) -> None:
    """Replace the tools of `manager` in an agent's ``tools`` with its present ones; other tools stay.

    Give the same options as to `smolagents_tools`.
    """
    wanted = ToolSelection.of(manager, **selection)
    for name, tool in list(tools.items()):
        if isinstance(tool, MCPServerTool) and tool.selection.manager is wanted.manager:
            del tools[name]
            # A selection that is the same has made its tools already.
            wanted = tool.selection if tool.selection.is_as(wanted) else wanted
    tools.update({tool.name: tool for tool in smolagents_tools(wanted, raise_errors=raise_errors)})


def _tools(selection: ToolSelection, listed: list[MCPTool], raise_errors: bool) -> list[MCPServerTool]:
    offered = {name_for_model(tool): tool for tool in listed}
    tools: dict[str, MCPServerTool] = {}
    for name, tool in offered.items():
        identifier = name.replace("-", "_")
        while identifier != name and (identifier in tools or identifier in offered):
            identifier += "_"
        tools[identifier] = MCPServerTool(selection, tool, identifier, raise_errors=raise_errors)
    return list(tools.values())


class MCPServerTool(Tool):
    """A tool of a server.

    It returns the structured content if the server declares a schema, else an image or a text.
    """

    skip_forward_signature_validation = True
    output_type = "object"

    def __init__(self, selection: ToolSelection, tool: MCPTool, name: str, *, raise_errors: bool) -> None:
        super().__init__()
        self.selection, self.tool, self.name, self.raise_errors = selection, tool, name, raise_errors
        self.description = description_for_model(tool)
        self.schema = _schema(tool)
        self.inputs = flat_properties(self.schema)
        self.output_schema = tool.output_schema

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = without_nulls(self.schema, dict(zip(self.inputs, args, strict=False)) | kwargs)
        result = self.selection.call(name_for_model(self.tool), arguments)
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


_schema = once_per_tool(inlined_schema)
