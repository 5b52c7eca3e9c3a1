"""The tools of MCP servers for LangChain and LangGraph."""

from __future__ import annotations

from typing import Any

from gaia.adapters.calls import Manager, call_tool_async, synchronous
from gaia.adapters.results import (
    Shown,
    content_for_model,
    description_for_model,
    input_schema,
    name_for_model,
    text_for_model,
)
from gaia.mcp import MCPClientManager, ToolResult

try:
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from pydantic import Field, SkipValidation
except ImportError as error:
    raise ImportError("gaia.adapters.langchain needs LangChain: pip install langchain") from error

__all__ = ["MCPStructuredTool", "langchain_tools"]


def langchain_tools(manager: Manager) -> list[StructuredTool]:
    """The tools that `manager` offers at this moment, for ``create_agent``, ``ToolNode`` and ``bind_tools``.

    The tools have the names that `manager.list_tools` gives them, can be called synchronously and asynchronously, by
    any number of threads and event loops, and go on to work when their server has been restarted. For a list that
    changes, call this again, or see `gaia.adapters.langchain_agents`.
    """
    return [
        MCPStructuredTool(
            name=name_for_model(tool),
            description=description_for_model(tool),
            args_schema=input_schema(tool),
            response_format="content_and_artifact",
            # An exception would end the run, or have a middleware repeat the call.
            handle_tool_error=True,
            metadata={"mcp_server": tool.server, **tool.annotations},
            manager=synchronous(manager),
            safe_to_repeat=tool.safe_to_repeat,
        )
        for tool in synchronous(manager).list_tools()
    ]


class MCPStructuredTool(StructuredTool):
    """A tool of a server.

    The ``ToolMessage`` of a call has texts and images as ``content``, and the whole `ToolResult` as ``artifact``, as a
    dict. What goes wrong is a message with ``status="error"``, never an exception.
    """

    manager: SkipValidation[MCPClientManager] = Field(exclude=True, repr=False)
    safe_to_repeat: bool = False

    # These take no other parameters, because LangChain would pass them its own `config` and `run_manager`.
    def _run(self, /, **arguments: Any) -> Any:
        return self._output(self.manager.call_tool(self.name, arguments))

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - as LangChain has it
        # That of StructuredTool runs a tool without `coroutine` in a thread, where a call cannot be cancelled.
        return await BaseTool.ainvoke(self, input, config, **options)

    async def _arun(self, /, **arguments: Any) -> Any:
        return self._output(await call_tool_async(self.manager, self.name, arguments))

    def _output(self, result: ToolResult) -> tuple[str | list[dict[str, Any]], dict[str, Any]]:
        if result.is_error:
            raise ToolException(text_for_model(result, safe_to_repeat=self.safe_to_repeat))
        shown = content_for_model(result)
        if all(part["type"] == "text" for part in shown):
            return text_for_model(result), dict(result)
        return [_block(part) for part in shown], dict(result)


def _block(part: Shown) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {"type": "image", "base64": part["data"], "mime_type": part["mimeType"]}
