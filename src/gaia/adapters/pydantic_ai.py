"""The tools of MCP servers for pydantic-ai: `MCPManagerToolset`."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass
from typing import Any, Unpack

from gaia.adapters.arguments import inlined_schema
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult

try:
    from pydantic_ai import (
        AbstractToolset,
        ApprovalRequired,
        BinaryContent,
        CustomEvent,
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


@dataclass(kw_only=True)
class MCPProgressEvent(CustomEvent):
    """Progress that a server reports of a call, in the events of a run; `tool_call_id` tells of which call."""

    progress: float
    total: float | None
    message: str | None


class MCPManagerToolset(AbstractToolset[AgentDepsT]):
    """The tools of `manager`, listed again at each step of a run, under the names of `manager.list_tools`.

    Never starts or stops servers. Any number of agents, runs and event loops may share a toolset.
    """

    id: str | None = None

    def __init__(
        self,
        manager: Manager,
        *,
        id: str | None = None,
        instructions: bool = False,
        **selection: Unpack[SelectionKeywords],
    ) -> None:
        """`selection` says which tools; see `ToolSelection`. A call that needs approval raises ``ApprovalRequired``.

        `id` is the toolset's name among an agent's toolsets. Durable execution needs it. With `instructions`, those of
        the servers are added to the agent's. A model obeys them, so trust these servers.
        """
        self._selection = ToolSelection.of(manager, **selection).apart()
        self._instructions = instructions
        self.id = id

    async def get_instructions(self, ctx: RunContext[AgentDepsT]) -> str | None:
        """The instructions of the servers, with the keyword `instructions`."""
        return (self._selection.instructions() or None) if self._instructions else None

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The present tools of the manager."""
        return self._selection.cached(_toolset_tools, self, ctx.max_retries).copy()

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call a tool. Raises ModelRetry if the tool reports an error, and ToolFailed if the call failed."""
        if not ctx.tool_call_approved and self._selection.asks(name, tool_args):
            raise ApprovalRequired

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await ctx.emit(MCPProgressEvent(progress=progress, total=total, message=message))

        approved = ctx.tool_call_approved and self._selection.asks_by_framework
        result = await self._selection.call_async(name, tool_args, approved=approved, report=report)
        if not result.is_error:
            return _output(result)
        text = text_for_model(result, safe_to_repeat=(tool.tool_def.metadata or {}).get("safe_to_repeat") is True)
        # A retry asks the model to try again, which is wrong for a call that may have taken effect.
        raise ToolFailed(text) if "error_type" in result else ModelRetry(text)


def _toolset_tools(
    _: ToolSelection, tools: list[MCPTool], toolset: AbstractToolset[Any], max_retries: int
) -> dict[str, ToolsetTool[Any]]:
    definitions = [_definition(tool) for tool in tools]
    return {
        one.name: ToolsetTool(toolset=toolset, tool_def=one, max_retries=max_retries, args_validator=_ARGUMENTS)
        for one in definitions
    }


@once_per_tool
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
    """The structured content if the other parts are only text, which repeats it; else the texts, images and files."""
    output: list[Any] = parts_for_model(result, str, _binary, lambda data, _: _binary(data, "application/pdf"), _binary)
    if result.structured is not None and all(isinstance(part, str) for part in output):
        return result.structured
    return output[0] if len(output) == 1 else output


def _binary(data: str, mime_type: str) -> BinaryContent:
    return BinaryContent(base64.b64decode(data), media_type=mime_type)
