"""The tools of MCP servers for Strands Agents, as they are at each turn: `MCPManagerPlugin`."""

from __future__ import annotations

import contextlib

from gaia.adapters.calls import Manager, synchronous
from gaia.adapters.strands import MCPManagerTool

try:
    from strands import Agent
    from strands.hooks import BeforeModelCallEvent
    from strands.plugins import Plugin
except ImportError as error:
    raise ImportError("gaia.adapters.strands_plugin needs Strands Agents: pip install strands-agents") from error

__all__ = ["MCPManagerPlugin"]


class MCPManagerPlugin(Plugin):
    """Gives an agent what `manager` offers: ``Agent(plugins=[…])``. Starts and stops no servers.

    Before each call of the model, the agent's tools become what is listed then. A tool of the agent's own that has the
    same name, or one that differs only by ``-`` and ``_``, stays, and the server's is left out.
    """

    name = "gaia-mcp"

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self._manager = manager

    def init_agent(self, agent: Agent) -> None:
        """Register the tools, and take over what has changed before each call of the model; Strands calls this."""
        self._update(agent)
        agent.add_hook(lambda event: self._update(event.agent), BeforeModelCallEvent)

    def _update(self, agent: Agent) -> None:
        registry = agent.tool_registry
        listed = {tool.namespaced_name or tool.name: tool for tool in synchronous(self._manager).list_tools()}
        for name, known in tuple(registry.registry.items()):
            if isinstance(known, MCPManagerTool) and known.manager is self._manager and known.tool != listed.get(name):
                del registry.registry[name]
        for name, tool in listed.items():
            # What a server lists must not end the agent's run.
            with contextlib.suppress(ValueError):
                if name not in registry.registry:
                    registry.register_tool(MCPManagerTool(tool, self._manager))
