"""The tools of MCP servers for LangChain and LangGraph: `langchain_tools`, and `refresh` for a list that changes."""

from __future__ import annotations

import asyncio
from typing import Any

from gaia.adapters.results import content_for_model, input_schema, text_for_model
from gaia.mcp import MCPClientManager, MCPError, MCPTool, ToolResult

try:
    from langchain_core.tools import StructuredTool, ToolException
except ImportError as error:
    raise ImportError("gaia.adapters.langchain needs LangChain: pip install langchain") from error

__all__ = ["MCPStructuredTool", "langchain_tools"]


def langchain_tools(manager: MCPClientManager) -> list[StructuredTool]:
    """The tools that `manager` offers at this moment, for ``create_agent``, ``ToolNode`` and ``bind_tools``.

    The tools have the names that `manager.list_tools` gives them, can be called synchronously and asynchronously, by
    any number of threads and event loops, and go on to work when their server has been restarted.
    """
    return [
        MCPStructuredTool(
            name=tool.namespaced_name or tool.name,
            description=tool.description or tool.title or tool.name,
            args_schema=input_schema(tool),
            response_format="content_and_artifact",
            # An exception would end the run, or have a middleware repeat the call.
            handle_tool_error=True,
            metadata={"mcp_server": tool.server, **tool.annotations},
            manager=manager,
            tool=tool,
        )
        for tool in manager.list_tools()
    ]


class MCPStructuredTool(StructuredTool):
    """One tool. Its ``ToolMessage`` has the texts and images as content, and the whole `ToolResult` as ``artifact``.

    What goes wrong is a message with ``status="error"``.
    """

    manager: Any
    tool: Any

    # Only keywords, because LangChain passes its own `config` and `run_manager` to parameters of these names. Here they
    # are the tool's arguments.

    def _run(self, /, **arguments: Any) -> Any:
        return self._output(self.manager.call_tool(self.name, arguments))

    async def _arun(self, /, **arguments: Any) -> Any:
        try:
            result = await asyncio.wrap_future(self.manager.submit_tool(self.name, arguments))
        except MCPError as error:
            result = ToolResult.from_error(error)
        return self._output(result)

    def _output(self, result: ToolResult) -> tuple[Any, dict[str, Any]]:
        tool: MCPTool = self.tool
        if result.is_error:
            raise ToolException(text_for_model(result, safe_to_repeat=tool.safe_to_repeat))
        shown = content_for_model(result)
        if all(part["type"] == "text" for part in shown):
            return text_for_model(result), dict(result)
        return [
            part if part["type"] == "text" else {"type": "image", "base64": part["data"], "mime_type": part["mimeType"]}
            for part in shown
        ], dict(result)
