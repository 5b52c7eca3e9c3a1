"""The base classes of agents, and what their users name."""

from gaia.agents.base.agent import Agent, ApiAgent
from gaia.agents.base.agent_result import AgentResult
from gaia.agents.base.confirmation import ConfirmationRequest
from gaia.agents.base.llm import LLMError, LLMSettings
from gaia.agents.base.mcp_agent import MCPAgent

__all__ = ["Agent", "AgentResult", "ApiAgent", "ConfirmationRequest", "LLMError", "LLMSettings", "MCPAgent"]
