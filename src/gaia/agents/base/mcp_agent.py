"""`MCPAgent`: an agent that can be served to MCP clients."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from gaia.agents.base.agent import Agent

__all__ = ["MCPAgent"]


class MCPAgent(Agent):
    """Base class for agents that support MCP.

    It says what an MCP server for this agent offers; it does not serve anything by itself. Works in any order with
    `ApiAgent`::

        class CodeAgent(MCPAgent, ApiAgent, Agent): ...
    """

    @abstractmethod
    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        """The tools on offer.

        Each definition has a ``name`` (lowercase with dashes), a ``description`` and an ``inputSchema`` (a JSON Schema
        of type object). Every tool named here must be known to `execute_mcp_tool`.
        """

    @abstractmethod
    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one tool, synchronously, and return a dict that can be written as JSON.

        Raises ValueError if there is no such tool. Other failures are returned as ``{"error": message}`` or raised as
        ValueError.
        """

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        """The prompt templates on offer, each with ``name``, ``description`` and ``arguments``; none by default."""
        return []

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        """The resources on offer, each with ``uri``, ``name``, ``description``, ``mimeType``; none by default."""
        return []

    def get_mcp_server_info(self) -> dict[str, Any]:
        """``name`` and ``version`` of the server that this agent appears as."""
        return {"name": f"GAIA {type(self).__name__}", "version": "2.0.0"}
