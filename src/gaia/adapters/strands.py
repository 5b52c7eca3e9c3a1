"""The tools of MCP servers for Strands Agents: `MCPManagerPlugin`, and `strands_tools` for a fixed list."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections import deque
from typing import Any

from gaia.adapters.results import Shown, content_for_model, input_schema
from gaia.mcp import MCPClientManager, MCPTool, ToolResult
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.mcp.errors import CallCancelled

try:
    from strands import Agent
    from strands.hooks import BeforeModelCallEvent
    from strands.plugins import Plugin, hook
    from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse
except ImportError as error:
    raise ImportError("gaia.adapters.strands needs Strands Agents: pip install strands-agents") from error

__all__ = ["MCPManagerPlugin", "MCPManagerTool", "strands_tools"]

_INTERRUPTED = "the call was interrupted before its answer came"
_CANCEL_SECONDS = 0.05
"""How often a call under way looks whether its agent was cancelled. `threading.Event` wakes up no event loop."""


def strands_tools(manager: MCPClientManager | AsyncMCPClientManager) -> list[AgentTool]:
    """The tools that `manager` offers at this moment, for ``Agent(tools=…)``, with the names that it gives them.

    They can be shared by agents, threads and event loops, and go on to work when their server has been restarted.
    """
    over = manager if isinstance(manager, AsyncMCPClientManager) else AsyncMCPClientManager.over(manager)
    return [MCPManagerTool(tool, over) for tool in over.sync.list_tools()]


class MCPManagerPlugin(Plugin):
    """Gives an agent what `manager` offers: ``Agent(plugins=[…])``. Starts and stops no servers.

    Before each call of the model, the agent's tools become what is listed then. A tool of the agent's own that has the
    same name, or one that differs only by ``-`` and ``_``, stays, and the server's is left out.
    """

    name = "gaia-mcp"

    def __init__(self, manager: MCPClientManager | AsyncMCPClientManager) -> None:
        super().__init__()
        self._manager = manager if isinstance(manager, AsyncMCPClientManager) else AsyncMCPClientManager.over(manager)

    def init_agent(self, agent: Agent) -> None:
        """Register the tools; Strands calls this."""
        registry = agent.tool_registry
        listed = {tool.namespaced_name or tool.name: tool for tool in self._manager.sync.list_tools()}
        for name, known in tuple(registry.registry.items()):
            if isinstance(known, MCPManagerTool) and known.tool != listed.get(name):
                del registry.registry[name]
        for name, tool in listed.items():
            if name not in registry.registry:
                # What a server lists must not end the agent's run.
                with contextlib.suppress(ValueError):
                    registry.register_tool(MCPManagerTool(tool, self._manager))

    @hook
    def follow_changes(self, event: BeforeModelCallEvent) -> None:
        """Take over what has changed; Strands calls this."""
        self.init_agent(event.agent)


class MCPManagerTool(AgentTool):
    """One tool. What goes wrong is a result with ``status: "error"``, never an exception.

    A hook may have Strands make a call again (``AfterToolCallEvent.retry``). A tool that is not marked as safe to
    repeat is not called again then, if it is not known what became of the first call.
    """

    # Properties in the base class; abstract ones have to be overridden here.
    tool_name: str = ""
    tool_spec: ToolSpec = ToolSpec(name="", description="", inputSchema={})
    tool_type = "mcp"

    def __init__(self, tool: MCPTool, manager: AsyncMCPClientManager) -> None:
        super().__init__()
        self.tool, self._manager = tool, manager
        self.tool_name = tool.namespaced_name or tool.name
        self.tool_spec = {
            "name": self.tool_name,
            "description": tool.description or tool.title or tool.name,
            "inputSchema": {"json": input_schema(tool)},
            "annotations": tool.annotations,
        }
        self._unanswered: deque[tuple[object, ToolResult]] = deque(maxlen=100)
        """The last calls whose outcome is not known, by their arguments. `append` and `copy` are atomic."""

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any) -> ToolGenerator:
        """Call the tool; Strands does that. `Agent.cancel` cancels the call, and so does the end of the task."""
        arguments = tool_use["input"]
        # A retry has the very object that the model's request was decoded to; another request may have the same id.
        earlier = [result for made, result in self._unanswered.copy() if made is arguments]
        result = earlier[0] if earlier else ToolResult.from_error(CallCancelled(_INTERRUPTED, delivery="unknown"))
        if not earlier:
            try:
                result = await self._call(arguments, getattr(invocation_state.get("agent"), "cancel_signal", None))
            finally:
                if result.get("delivery") == "unknown" and not self.tool.safe_to_repeat:
                    self._unanswered.append((arguments, result))
        shown = [_content(part) for part in content_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)]
        status = "error" if result.is_error else "success"
        answer = {"toolUseId": tool_use["toolUseId"], "status": status, "content": shown}
        yield answer if result.structured is None else {**answer, "structuredContent": result.structured}

    async def _call(self, arguments: Any, cancelled: threading.Event | None) -> ToolResult:
        call = asyncio.ensure_future(self._manager.call_tool(self.tool_name, arguments))
        try:
            while not call.done():
                if cancelled is not None and cancelled.is_set():
                    return ToolResult.from_error(CallCancelled("the agent was cancelled", delivery="unknown"))
                await asyncio.wait((call,), timeout=_CANCEL_SECONDS)
            return call.result()
        finally:
            if not call.done():
                call.cancel()
                await asyncio.wait((call,))


def _content(part: Shown) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part["text"]}
    # Of the types in `results.IMAGE_TYPES`, which Strands takes all.
    form = part["mimeType"].removeprefix("image/")
    return {"image": {"format": form, "source": {"bytes": base64.b64decode(part["data"])}}}
