"""Reading what the tools of scripted servers return."""

import json
from typing import Any

from gaia.mcp.client import MCPClient


def text(result: dict[str, Any]) -> str:
    """The text of a result that has one; fails for an error dict, and shows it."""
    assert "error" not in result, result
    return str(result["content"][0]["text"])


def received(client: MCPClient) -> list[dict[str, Any]]:
    """Everything that the fault server behind `client` has been sent."""
    messages: list[dict[str, Any]] = json.loads(text(client.call_tool("received")))
    return messages


def received_calls(client: MCPClient) -> list[str]:
    """The names of all tools whose calls reached the fault server, that of this question included."""
    return [message["params"]["name"] for message in received(client) if message.get("method") == "tools/call"]
