"""The tools of MCP servers for Strands Agents: `strands_tools`."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

from gaia.adapters.calls import Manager, call_tool_async, synchronous
from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import Shown, content_for_model, input_schema
from gaia.mcp import MCPTool, ToolResult
from gaia.mcp.errors import CallCancelled

try:
    from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse
except ImportError as error:
    raise ImportError("gaia.adapters.strands needs Strands Agents: pip install strands-agents") from error

__all__ = ["MCPManagerTool", "strands_tools"]

_CANCEL_SECONDS = 0.05
"""How often a call under way looks whether its agent was cancelled. `threading.Event` wakes up no event loop."""


def strands_tools(manager: Manager) -> list[AgentTool]:
    """The tools that `manager` offers at this moment, for ``Agent(tools=…)``, with the names that it gives them.

    They can be shared by agents, threads and event loops, and go on to work when their server has been restarted. For a
    list that changes there is `gaia.adapters.strands_plugin`.
    """
    return [MCPManagerTool(tool, manager) for tool in synchronous(manager).list_tools()]


class MCPManagerTool(AgentTool):
    """One tool. What goes wrong is a result with ``status: "error"``, never an exception.

    A hook may have Strands make a call again (``AfterToolCallEvent.retry``). A tool that is not marked as safe to
    repeat is not called again then, if it is not known what became of the first call.
    """

    # Properties in the base class; abstract ones have to be overridden here.
    tool_name: str = ""
    tool_spec: ToolSpec = ToolSpec(name="", description="", inputSchema={})
    tool_type = "mcp"

    def __init__(self, tool: MCPTool, manager: Manager) -> None:
        super().__init__()
        self.tool, self.manager = tool, manager
        self.tool_name = tool.namespaced_name or tool.name
        self.tool_spec = {
            "name": self.tool_name,
            "description": tool.description or tool.title or tool.name,
            "inputSchema": {"json": input_schema(tool)},
            "annotations": tool.annotations,
        }
        self._in_doubt: CallsInDoubt[object] = CallsInDoubt()

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any) -> ToolGenerator:
        """Call the tool; Strands does that. `Agent.cancel` cancels the call, and so does the end of the task."""
        arguments, agent = tool_use["input"], invocation_state.get("agent")
        result = await self._in_doubt.make(
            self.tool,
            arguments,
            # A retry has the very object that the model's request was decoded to; another request may have the same id.
            lambda earlier: earlier is arguments,
            lambda: self._call(arguments, getattr(agent, "cancel_signal", None)),
        )
        shown = [_content(part) for part in content_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)]
        answer = {
            "toolUseId": tool_use["toolUseId"],
            "status": "error" if result.is_error else "success",
            "content": shown,
        }
        yield answer if result.structured is None else {**answer, "structuredContent": result.structured}

    async def _call(self, arguments: Any, cancelled: threading.Event | None) -> ToolResult:
        call = asyncio.ensure_future(call_tool_async(self.manager, self.tool_name, arguments))
        try:
            while not (await asyncio.wait((call,), timeout=_CANCEL_SECONDS))[0]:
                if cancelled is not None and cancelled.is_set():
                    return ToolResult.from_error(CallCancelled("the agent was cancelled", delivery="unknown"))
            return call.result()
        finally:
            call.cancel()
            await asyncio.wait((call,))


def _content(part: Shown) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part["text"]}
    # Of the types in `results.IMAGE_TYPES`, which Strands takes all.
    form = part["mimeType"].removeprefix("image/")
    return {"image": {"format": form, "source": {"bytes": base64.b64decode(part["data"])}}}
