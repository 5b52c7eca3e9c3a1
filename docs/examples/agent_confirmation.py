"""An agent that shows each call of a tool that may change something to a function of yours, and obeys its answer."""

import sys

from gaia.agents.base import Agent, ConfirmationRequest
from gaia.mcp import MCPClientMixin

DEMO = {"command": sys.executable, "args": ["-m", "gaia.mcp.demo_server"]}
ALLOWED = {("demo", "mcp_demo_counter")}


def allow_listed(request: ConfirmationRequest) -> bool:
    allowed = (request.server, request.tool) in ALLOWED
    print(f"{request.display_name} {dict(request.arguments)}: {'yes' if allowed else 'no'}")
    return allowed


class CarefulAgent(Agent, MCPClientMixin):
    def __init__(self) -> None:
        super().__init__(silent_mode=True, mcp_servers={"demo": DEMO}, on_confirmation=allow_listed)

    def _get_system_prompt(self) -> str:
        return "You try out tools."


def main() -> None:
    agent = CarefulAgent()
    try:
        result = agent.run("Call add, counter and crash, once each.")
    finally:
        agent.close_mcp()
    print(", ".join(f"{call.name}: {call.outcome}" for call in result.tool_calls))
    print(result.answer)


if __name__ == "__main__":
    main()
