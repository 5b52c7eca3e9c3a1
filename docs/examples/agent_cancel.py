"""A run with a time limit: a timer cancels it, the server is told, and what was done until then is there."""

import sys
import threading

from gaia.agents.base import Agent
from gaia.mcp import MCPClientMixin

DEMO = {"command": sys.executable, "args": ["-m", "gaia.mcp.demo_server"]}


class PatientAgent(Agent, MCPClientMixin):
    def __init__(self) -> None:
        super().__init__(silent_mode=True, mcp_servers={"demo": DEMO})

    def _get_system_prompt(self) -> str:
        return "You wait for as long as you are told."


def main() -> None:
    agent = PatientAgent()
    timer = threading.Timer(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, agent.cancel)
    timer.start()
    try:
        result = agent.run("Sleep for an hour with the tool sleep.")
    finally:
        timer.cancel()
        agent.close_mcp()
    print(f"{result.stop_reason}: {', '.join(f'{call.name} {call.outcome}' for call in result.tool_calls)}")


if __name__ == "__main__":
    main()
