"""The present tools of MCP servers for agents of ``langchain.agents``, at each turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from gaia.adapters.langchain import langchain_tools
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import SystemMessage
except ImportError as error:
    raise ImportError("gaia.adapters.langchain_agents needs LangChain: pip install langchain") from error


class MCPToolsMiddleware(AgentMiddleware):
    """Gives an agent the present tools of `manager` whenever the model is asked, and makes its calls of them.

    ``create_agent(model, tools, middleware=[MCPToolsMiddleware(manager)])``, where `tools` are the agent's other tools.
    The model can call a new tool in its next turn; a removed tool is no longer shown.
    """

    def __init__(self, manager: Manager, *, instructions: bool = False, **selection: Unpack[SelectionKeywords]) -> None:
        """`selection` says which tools; see `ToolSelection`. A call that needs approval interrupts the graph.

        With `instructions`, those of the servers follow the system prompt. A model obeys them, so trust these servers.
        """
        super().__init__()
        self._selection = ToolSelection.shared(manager, **selection)
        self._instructions = instructions

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self._with_tools(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(self._with_tools(request))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self._with_tool(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(self._with_tool(request))

    def _with_tools(self, request: Any) -> Any:
        changes: dict[str, Any] = {"tools": [*request.tools, *langchain_tools(self._selection)]}
        if self._instructions and (text := self._selection.instructions()):
            own = [] if request.system_message is None else [request.system_message.text]
            changes["system_message"] = SystemMessage("\n\n".join([*own, text]))
        return request.override(**changes)

    def _with_tool(self, request: Any) -> Any:
        """Add the tool with this name, if the agent has none. LangChain itself answers a call of an unknown tool."""
        if request.tool is not None:
            return request
        named = [tool for tool in langchain_tools(self._selection) if tool.name == request.tool_call["name"]]
        return request.override(tool=named[0]) if named else request
