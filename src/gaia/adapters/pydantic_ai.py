"""The tools of MCP servers for pydantic-ai: `MCPManagerToolset`."""

from __future__ import annotations

import base64
import copy
from typing import Any

from gaia.adapters.arguments import inlined_schema
from gaia.adapters.calls import Manager, call_tool_async, listed
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.mcp import MCPTool, ToolResult

try:
    from pydantic_ai import (
        AbstractToolset,
        BinaryContent,
        InlineDefsJsonSchemaTransformer,
        ModelRetry,
        RunContext,
        ToolDefinition,
        ToolFailed,
        UserError,
    )
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise ImportError("gaia.adapters.pydantic_ai needs pydantic-ai: pip install pydantic-ai-slim") from error

_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""Accepts all arguments, because the server checks them."""


class MCPManagerToolset(AbstractToolset[AgentDepsT]):
    """The tools of `manager`, listed again at each step of a run, under the names of `manager.list_tools`.

    Never starts or stops servers. Any number of agents, runs and event loops may share a toolset.
    """

    id: str | None = None

    def __init__(self, manager: Manager, *, id: str | None = None) -> None:
        """`id` is the toolset's name among an agent's toolsets. Durable execution needs it."""
        self._manager = manager
        self.id = id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The present tools of the manager."""
        definitions = [_definition(tool) for tool in listed(self._manager)]
        return {
            one.name: ToolsetTool(toolset=self, tool_def=one, max_retries=ctx.max_retries, args_validator=_ARGUMENTS)
            for one in definitions
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call a tool. Raises ModelRetry if the tool reports an error, and ToolFailed if the call failed."""
        result = await call_tool_async(self._manager, name, tool_args)
        if not result.is_error:
            return _output(result)
        text = text_for_model(result, safe_to_repeat=(tool.tool_def.metadata or {}).get("safe_to_repeat") is True)
        # A retry asks the model to try again, which is wrong for a call that may have taken effect.
        raise ToolFailed(text) if "error_type" in result else ModelRetry(text)


def _definition(tool: MCPTool) -> ToolDefinition:
    return ToolDefinition(
        name=name_for_model(tool),
        description=description_for_model(tool),
        parameters_json_schema=_schema(tool),
        return_schema=tool.output_schema,
        metadata={"server": tool.server, "annotations": tool.annotations, "safe_to_repeat": tool.safe_to_repeat},
    )


def _schema(tool: MCPTool) -> dict[str, Any]:
    """The schema of the arguments, reduced if pydantic-ai cannot use it, so that it does not end the run."""
    inlined = inlined_schema(tool)
    for schema in (input_schema(tool), inlined):
        try:
            InlineDefsJsonSchemaTransformer(copy.deepcopy(schema)).walk()
        except UserError:
            continue
        return schema
    return {"type": "object", "properties": {name: {} for name in inlined["properties"]}}


def _output(result: ToolResult) -> Any:
    """The structured content if the other parts are only text, which repeats it; else the texts and images."""
    output: list[Any] = parts_for_model(
        result, str, lambda data, mime: BinaryContent(base64.b64decode(data), media_type=mime)
    )
    if result.structured is not None and all(isinstance(part, str) for part in output):
        return result.structured
    return output[0] if len(output) == 1 else output
