"""An agent with one native tool and the tools of an MCP server answers a question.

Set GAIA_LLM_BASE_URL, GAIA_LLM_MODEL and, if the endpoint wants one, GAIA_LLM_API_KEY, then run this file. The server
is the demo server that comes with the package.
"""

import sys

from gaia.agents.base import Agent
from gaia.agents.base.tools import tool
from gaia.mcp import MCPClientMixin

DEMO = {"command": sys.executable, "args": ["-m", "gaia.mcp.demo_server"]}


class CalculatingAgent(Agent, MCPClientMixin):
    def __init__(self) -> None:
        super().__init__(mcp_servers={"demo": DEMO}, max_steps=8)

    def _get_system_prompt(self) -> str:
        return "You calculate with your tools and answer briefly."

    def _register_tools(self) -> None:
        @tool
        def double(number: float) -> float:
            """Double a number.

            Args:
                number: What to double
            """
            return 2 * number


def main() -> None:
    agent = CalculatingAgent()
    try:
        result = agent.run("Add 19 and 2, then double the sum.")
    finally:
        agent.close_mcp()
    print(f"{len(result.steps)} steps, {result.usage.total_tokens} tokens")
    for call in result.tool_calls:
        print(f"{call.name}({dict(call.arguments or {})}): {call.outcome}")
    print(result.answer)


if __name__ == "__main__":
    main()
