"""The base classes of agents, and the names that their users need.

- `agent`: `Agent`, with its prompt, console and tools; `mcp_agent` and `mcp_context`: an agent served to MCP clients.
- `loop`: one run, which asks the model and makes its calls. `chat` and `llm`: the model.
- `tools` and `registry`: which tools an agent sees, and which tool a name means.
- `tool_schema` and `tool_executor`: a tool's description for a model, and the execution of a call.
- `confirmation` and `console`: which calls a person confirms, and how the person is asked.
- `agent_result` and `agent_spans`: the outcome of a run, and its spans.

Invariants: a failed tool never ends a run; the model reads the error. A call without a required confirmation is not
made. Agents neither see nor replace each other's tools. `tools` imports nothing of gaia.
"""

from gaia.agents.base.agent import Agent, ApiAgent
from gaia.agents.base.agent_result import AgentResult
from gaia.agents.base.confirmation import ConfirmationRequest
from gaia.agents.base.llm import LLMError, LLMSettings
from gaia.agents.base.mcp_agent import MCPAgent

__all__ = ["Agent", "AgentResult", "ApiAgent", "ConfirmationRequest", "LLMError", "LLMSettings", "MCPAgent"]
