"""The tools of MCP servers for Google's Agent Development Kit (ADK): `MCPManagerToolset`."""

from __future__ import annotations

import base64
import json
from collections import deque
from typing import Any, TypeAlias

from gaia.adapters.results import content_for_model, input_schema, text_for_model
from gaia.mcp import MCPClientManager, MCPTool, ToolResult
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.mcp.errors import CallCancelled

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset, ToolPredicate
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
except ImportError as error:
    raise ImportError("gaia.adapters.google_adk needs Google ADK: pip install google-adk") from error

__all__ = ["MCPManagerTool", "MCPManagerToolset"]

_Unanswered: TypeAlias = deque[tuple[tuple[Any, ...], ToolResult]]
_INTERRUPTED = "the call was interrupted before its answer came"


class MCPManagerToolset(BaseToolset):
    """What `manager` offers, listed anew at each step of a run. Starts and stops no servers, also not by `close`.

    The tools have the names that `manager.list_tools` gives them. Any number of agents, runs and event loops may share
    a toolset. ADK makes a call again when it resumes a run that was interrupted in the call, or retries the node of a
    workflow. A tool that is not marked as safe to repeat is not called again then: the answer says that the outcome of
    the first call is not known.
    """

    def __init__(
        self,
        manager: MCPClientManager | AsyncMCPClientManager,
        *,
        tool_filter: ToolPredicate | list[str] | None = None,
    ) -> None:
        """`tool_filter` is ADK's, for the names of the tools here: this toolset shows only those that it selects."""
        super().__init__(tool_filter=tool_filter)
        self._manager = manager if isinstance(manager, AsyncMCPClientManager) else AsyncMCPClientManager.over(manager)
        # Otherwise ADK would show the whole of a run what its first step was given.
        self._use_invocation_cache = False
        self._unanswered: _Unanswered = deque(maxlen=200)
        """The last calls whose outcome is not known, by what ADK calls them. `append` and `copy` are atomic."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools that the manager offers at this moment."""
        tools = [MCPManagerTool(tool, self._manager, self._unanswered) for tool in await self._manager.list_tools()]
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]


class MCPManagerTool(BaseTool):
    """One tool. It returns ``{"result": text or structured content}``, with pictures as parts under ``"images"``.

    A failure is ``{"error": text}``, and never an exception, which ADK would take as a reason to call again.
    """

    def __init__(self, tool: MCPTool, manager: AsyncMCPClientManager, unanswered: _Unanswered) -> None:
        super().__init__(
            name=tool.namespaced_name or tool.name,
            description=tool.description or tool.title or tool.name,
            custom_metadata={"mcp_server": tool.server, "annotations": tool.annotations},
        )
        self.tool, self._manager, self._unanswered = tool, manager, unanswered

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=input_schema(self.tool)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Call the tool; ADK does that. If the task is cancelled, so is the call."""
        name = self.tool.namespaced_name or self.tool.name
        call = (tool_context.invocation_id, name, json.dumps(args, sort_keys=True, default=str))
        step, attempt = tool_context.node_path, tool_context.attempt_count
        # A run that is resumed makes the call again under its id, and each attempt of a node makes it anew.
        earlier = [(*call, tool_context.function_call_id), *((*call, step, number) for number in range(1, attempt))]
        for made, result in self._unanswered.copy():
            if made in earlier:
                return self._response(result)
        result = ToolResult.from_error(CallCancelled(_INTERRUPTED, delivery="unknown"))
        try:
            result = await self._manager.call_tool(name, args)
        finally:
            if result.get("delivery") == "unknown" and not self.tool.safe_to_repeat:
                self._unanswered.append(((*call, tool_context.function_call_id), result))
                self._unanswered.append(((*call, step, attempt), result))
        return self._response(result)

    def _response(self, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            return {"error": text_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)}
        shown = content_for_model(result)
        response: dict[str, Any] = {"result": "\n".join(part["text"] for part in shown if part["type"] == "text")}
        if result.structured is not None:
            # Most servers send it twice, as a text for older clients too.
            response["result" if _parsed(response["result"]) == result.structured else "structured"] = result.structured
        if images := [part for part in shown if part["type"] == "image"]:
            # ADK moves parts of a response to where models look for pictures.
            response["images"] = [
                types.Part.from_bytes(data=base64.b64decode(part["data"]), mime_type=part["mimeType"])
                for part in images
            ]
        return response


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
