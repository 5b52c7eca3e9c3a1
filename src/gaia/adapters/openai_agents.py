"""The tools of MCP servers for the OpenAI Agents SDK: `function_tools`, and `MCPManagerAgent` for lists that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult

try:
    from agents import (
        Agent,
        FunctionTool,
        RunContextWrapper,
        TContext,
        Tool,
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
    )
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ImportError("gaia.adapters.openai_agents needs openai-agents: pip install openai-agents") from error


def function_tools(manager: Manager, **selection: Unpack[SelectionKeywords]) -> list[FunctionTool]:
    """The present tools of `manager`, for ``Agent(tools=…)``. `selection` says which; see `ToolSelection`.

    A failure is a text in the tool's output. No call raises an exception. A call that needs approval interrupts the
    run, as ``needs_approval`` does.
    """
    return ToolSelection.of(manager, **selection).each(_function_tool)


@dataclass
class MCPManagerAgent(Agent[TContext]):
    """An ``Agent`` with its own `tools` and the tools of `mcp_manager`, listed again at each turn of a run."""

    mcp_manager: Manager | None = None
    """Its owner starts and stops its servers. A `ToolSelection` limits the tools. None: the agent has no such tools."""
    mcp_instructions: bool = False
    """Whether the servers' instructions follow the agent's own. A model obeys them, so trust these servers."""

    async def get_mcp_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools of `mcp_servers`, and the present tools of `mcp_manager`."""
        tools = await super().get_mcp_tools(run_context)
        selection = self._selected()
        return tools if selection is None else [*tools, *selection.each(_function_tool)]

    async def get_system_prompt(self, run_context: RunContextWrapper[TContext]) -> str | None:
        """The agent's instructions, and those of the servers with `mcp_instructions`."""
        own = await super().get_system_prompt(run_context)
        selection = self._selected() if self.mcp_instructions else None
        servers = "" if selection is None else selection.instructions()
        return "\n\n".join(text for text in (own, servers) if text) or own

    def _selected(self) -> ToolSelection | None:
        # Kept, because a shared selection ends with its last user. The application may set another manager.
        self._selection = None if self.mcp_manager is None else ToolSelection.shared(self.mcp_manager)
        return self._selection


def _function_tool(selection: ToolSelection, tool: MCPTool) -> FunctionTool:
    name = name_for_model(tool)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        approved = selection.asks_by_framework and _is_approved(context)
        return _output(await selection.call_async(name, arguments, approved=approved), tool)

    async def needs_approval(_context: RunContextWrapper[Any], arguments: dict[str, Any], _call_id: str) -> bool:
        return selection.asks(name, arguments)

    return FunctionTool(
        name=name,
        description=description_for_model(tool),
        params_json_schema=_schema(tool),
        on_invoke_tool=invoke,
        # Strict schemas require every argument, and forbid many keywords that servers use.
        strict_json_schema=False,
        needs_approval=needs_approval if selection.asks_by_framework else False,
    )


_schema = once_per_tool(input_schema)


def _is_approved(context: ToolContext[Any]) -> bool:
    """Whether a person has approved the call: code may call a tool without asking by `needs_approval`."""
    name = context.tool_name if context.tool_namespace is None else f"{context.tool_namespace}.{context.tool_name}"
    return context.is_tool_approved(name, context.tool_call_id) is True


def _output(result: ToolResult, tool: MCPTool) -> Any:
    parts: list[Any] = parts_for_model(
        result,
        lambda text: ToolOutputText(text=text),
        lambda data, mime: ToolOutputImage(image_url=f"data:{mime};base64,{data}"),
        lambda data, name: ToolOutputFileContent(file_data=f"data:application/pdf;base64,{data}", filename=name),
        safe_to_repeat=tool.safe_to_repeat,
    )
    is_text = all(isinstance(part, ToolOutputText) for part in parts)
    return text_for_model(result, safe_to_repeat=tool.safe_to_repeat) if is_text else parts
