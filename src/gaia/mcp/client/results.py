"""What `call_tool` returns: the server's result as it is, or a dict that says what went wrong.

A failure has ``error`` (a message for people and models), ``error_type`` (one of the words of `gaia.mcp.errors`) and
``delivery`` (whether the server may have acted: ``"not_sent"`` or ``"unknown"``); an answer with a JSON-RPC error also
has its ``code``, and its ``data`` if there is any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gaia.mcp.client.protocol.messages import INVALID_PARAMS
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.errors import JsonRpcError, MCPError

__all__ = ["failure"]


def failure(
    error: MCPError, tool_name: str, tool: MCPTool | None, arguments: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The dict for a failed call. Refused arguments are explained with the schema, so that a model can mend them."""
    outcome: dict[str, Any] = {
        "error": error.message,
        "error_type": error.error_type,
        "delivery": error.delivery,
    }
    if isinstance(error, JsonRpcError):
        outcome["code"] = error.code
        if error.data is not None:
            outcome["data"] = error.data
        if error.code == INVALID_PARAMS and tool is not None:
            outcome["error"] = _explained(error.message, tool_name, tool.input_schema, arguments or {})
    return outcome


def _explained(message: str, tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    return (
        f"MCP tool '{tool}' input validation failed.\n\n"
        f"Error details:\n{message}\n\n"
        f"Expected tool schema:\n{_pretty(schema)}\n\n"
        f"Your arguments:\n{_pretty(arguments)}"
    )


def _pretty(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
