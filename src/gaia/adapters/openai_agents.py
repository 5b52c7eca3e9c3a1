"""The tools of MCP servers for the OpenAI Agents SDK: `function_tools`, and `MCPManagerAgent` for lists that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gaia.adapters.calls import Manager, call_tool_async, listed
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.mcp import MCPTool, ToolResult

try:
    from agents import Agent, FunctionTool, RunContextWrapper, TContext, Tool, ToolOutputImage, ToolOutputText
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ImportError("gaia.adapters.openai_agents needs openai-agents: pip install openai-agents") from error


def function_tools(manager: Manager) -> list[FunctionTool]:
    """The present tools of `manager`, for ``Agent(tools=…)``.

    A failure is a text in the tool's output. No call raises an exception.
    """
    return [_function_tool(manager, tool) for tool in listed(manager)]


@dataclass
class MCPManagerAgent(Agent[TContext]):
    """An ``Agent`` with its own `tools` and the tools of `mcp_manager`, listed again at each turn of a run."""

    mcp_manager: Manager | None = None
    """Its owner starts and stops its servers. None: the agent has no such tools."""

    async def get_mcp_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools of `mcp_servers`, and the present tools of `mcp_manager`."""
        tools = await super().get_mcp_tools(run_context)
        return tools if self.mcp_manager is None else [*tools, *function_tools(self.mcp_manager)]


def _function_tool(manager: Manager, tool: MCPTool) -> FunctionTool:
    name = name_for_model(tool)

    async def invoke(_context: ToolContext[Any], arguments: str) -> Any:
        return _output(await call_tool_async(manager, name, arguments), tool)

    return FunctionTool(
        name=name,
        description=description_for_model(tool),
        params_json_schema=input_schema(tool),
        on_invoke_tool=invoke,
        # Strict schemas require every argument, and forbid many keywords that servers use.
        strict_json_schema=False,
    )


def _output(result: ToolResult, tool: MCPTool) -> Any:
    parts: list[Any] = parts_for_model(
        result,
        lambda text: ToolOutputText(text=text),
        lambda data, mime: ToolOutputImage(image_url=f"data:{mime};base64,{data}"),
        safe_to_repeat=tool.safe_to_repeat,
    )
    is_text = all(isinstance(part, ToolOutputText) for part in parts)
    return text_for_model(result, safe_to_repeat=tool.safe_to_repeat) if is_text else parts
