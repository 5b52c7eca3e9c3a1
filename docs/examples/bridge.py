"""Two agents at one endpoint: their tools are ``notes_…`` and ``shout_…``."""

import sys
from typing import Any

from notes_agent import NotesAgent

from gaia.agents.base import Agent, MCPAgent
from gaia.mcp.mcp_bridge import MCPBridge
from gaia.mcp.server import serve_stdio


class ShoutAgent(MCPAgent, Agent):
    """The smallest agent that can be served."""

    def _get_system_prompt(self) -> str:
        return "You shout."

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return [{"name": "shout", "description": "Say it louder", "inputSchema": text}]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"text": arguments["text"].upper()}


if __name__ == "__main__":
    print("This goes to standard error while the agents are served.", file=sys.stderr)
    serve_stdio(MCPBridge({"notes": NotesAgent(), "shout": ShoutAgent()}))
