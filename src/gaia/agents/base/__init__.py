"""The base classes of agents."""

from gaia.agents.base.agent import Agent
from gaia.agents.base.api_agent import ApiAgent
from gaia.agents.base.mcp_agent import MCPAgent

__all__ = ["Agent", "ApiAgent", "MCPAgent"]
