"""The tools of MCP servers for the OpenAI Agents SDK: `function_tools`, and `MCPManagerAgent` for lists that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gaia.adapters.calls import Manager, call_tool_async, synchronous
from gaia.adapters.results import content_for_model, description_for_model, input_schema, name_for_model, text_for_model
from gaia.mcp import MCPTool, ToolResult

try:
    from agents import Agent, FunctionTool, RunContextWrapper, TContext, Tool, ToolOutputImage, ToolOutputText
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ImportError("gaia.adapters.openai_agents needs openai-agents: pip install openai-agents") from error


def function_tools(manager: Manager) -> list[FunctionTool]:
    """The tools that `manager` offers at this moment, for ``Agent(tools=…)``.

    The tools have the names that `manager.list_tools` gives them, may be used by any number of agents, runs and event
    loops, and go on to work when their server has been restarted. What goes wrong is the tool's output, in words; no
    call raises an exception.
    """
    return [_function_tool(manager, tool) for tool in synchronous(manager).list_tools()]


@dataclass
class MCPManagerAgent(Agent[TContext]):
    """An ``Agent`` that has, beside its own `tools`, those of `mcp_manager`, listed anew at each turn of a run."""

    mcp_manager: Manager | None = None
    """Starting and stopping its servers is its owner's. None is an agent without these tools."""

    async def get_mcp_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools of `mcp_servers`, and those that `mcp_manager` offers at this moment."""
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
        # Strict schemas require every argument, and forbid much else that servers use.
        strict_json_schema=False,
    )


def _output(result: ToolResult, tool: MCPTool) -> Any:
    shown = content_for_model(result, safe_to_repeat=tool.safe_to_repeat)
    if all(part["type"] == "text" for part in shown):
        return text_for_model(result, safe_to_repeat=tool.safe_to_repeat)
    return [
        ToolOutputText(text=part["text"])
        if part["type"] == "text"
        else ToolOutputImage(image_url=f"data:{part['mimeType']};base64,{part['data']}")
        for part in shown
    ]
