"""The tools of MCP servers for Strands Agents: `MCPManagerPlugin`, and `strands_tools` for a fixed list."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
from typing import Any

from gaia.adapters.calls import Manager, call_tool_async, listed
from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model
from gaia.mcp import MCPTool, ToolResult
from gaia.mcp.errors import CallCancelled

try:
    from strands import Agent
    from strands.hooks import BeforeModelCallEvent
    from strands.plugins import Plugin
    from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse
except ImportError as error:
    raise ImportError("gaia.adapters.strands needs strands-agents: pip install strands-agents") from error

_CANCEL_SECONDS = 0.05
"""Seconds between checks for cancellation, because a `threading.Event` cannot wake an event loop."""


def strands_tools(manager: Manager) -> list[AgentTool]:
    """The present tools of `manager`, for ``Agent(tools=…)``."""
    return [MCPManagerTool(tool, manager) for tool in listed(manager)]


class MCPManagerPlugin(Plugin):
    """Gives an agent the tools of `manager`: ``Agent(plugins=[…])``. Never starts or stops servers.

    Before each call of the model, the agent's tools are updated. If the agent has a tool of its own with the same name,
    or with a name that differs only by ``-`` and ``_``, the server's tool is left out.
    """

    name = "gaia-mcp"

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self._manager = manager

    def init_agent(self, agent: Agent) -> None:
        """Register the tools, and update them before each call of the model. For Strands."""
        self._update(agent)
        agent.add_hook(lambda event: self._update(event.agent), BeforeModelCallEvent)

    def _update(self, agent: Agent) -> None:
        registry = agent.tool_registry
        present = {name_for_model(tool): tool for tool in listed(self._manager)}
        for name, known in tuple(registry.registry.items()):
            if isinstance(known, MCPManagerTool) and known.manager is self._manager and known.tool != present.get(name):
                del registry.registry[name]
        for tool in [tool for name, tool in present.items() if name not in registry.registry]:
            # A server's listing must not end the agent's run.
            with contextlib.suppress(ValueError):
                registry.register_tool(MCPManagerTool(tool, self._manager))


class MCPManagerTool(AgentTool):
    """A tool of a server. A failure is a result with ``status: "error"``, never an exception.

    A hook may let Strands repeat a call (``AfterToolCallEvent.retry``). If the outcome of the first call is unknown,
    the call is not repeated, unless the tool is marked as safe to repeat.
    """

    # The base class has abstract properties, which must be overridden here.
    tool_name = tool_type = "mcp"
    tool_spec = ToolSpec(name="", description="", inputSchema={})

    def __init__(self, tool: MCPTool, manager: Manager) -> None:
        super().__init__()
        self.tool, self.manager = tool, manager
        self.tool_name = name_for_model(tool)
        self.tool_spec = {
            "name": self.tool_name,
            "description": description_for_model(tool),
            "inputSchema": {"json": input_schema(tool)},
            "annotations": tool.annotations,
        }
        self._in_doubt: CallsInDoubt[object] = CallsInDoubt()

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any) -> ToolGenerator:
        """Call the tool, for Strands. `Agent.cancel` cancels the call, and so does the end of the task."""
        arguments = tool_use["input"]
        call = functools.partial(self._call, arguments, invocation_state.get("agent"))
        # A retry passes the same object again. The id does not identify a request, because another one may have the
        # same id.
        result = await self._in_doubt.make(self.tool, arguments, lambda earlier: earlier is arguments, call)
        content = parts_for_model(result, lambda text: {"text": text}, _image, safe_to_repeat=self.tool.safe_to_repeat)
        status = "error" if result.is_error else "success"
        answer = {"toolUseId": tool_use["toolUseId"], "status": status, "content": content}
        yield answer if result.structured is None else {**answer, "structuredContent": result.structured}

    async def _call(self, arguments: Any, agent: Agent | None) -> ToolResult:
        call = asyncio.ensure_future(call_tool_async(self.manager, self.tool_name, arguments))
        try:
            while not (await asyncio.wait((call,), timeout=_CANCEL_SECONDS))[0]:
                if agent is not None and agent.cancel_signal.is_set():
                    return ToolResult.from_error(CallCancelled("the agent was cancelled", delivery="unknown"))
            return call.result()
        finally:
            call.cancel()
            await asyncio.wait((call,))


def _image(data: str, mime_type: str) -> dict[str, Any]:
    # Strands accepts all types in `results.IMAGE_TYPES`.
    return {"image": {"format": mime_type.removeprefix("image/"), "source": {"bytes": base64.b64decode(data)}}}
