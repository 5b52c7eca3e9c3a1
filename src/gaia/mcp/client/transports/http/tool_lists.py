"""The tools of a listing that passes by: what is learnt from it, and what is left out of it."""

from __future__ import annotations

from typing import Any

import orjson

from gaia.mcp.client.transports.http.tool_headers import ToolHeaders

__all__ = ["without_unusable_tools"]


def without_unusable_tools(message: bytes, headers: ToolHeaders) -> bytes:
    """`message`, without the tools that cannot be called if it is the answer to `tools/list`."""
    try:
        answer = orjson.loads(message)
    except orjson.JSONDecodeError:
        return message
    tools = _tools(answer)
    if tools is None:
        return message
    offered = headers.learn(tools)
    if len(offered) == len(tools):
        return message
    answer["result"]["tools"] = offered
    return orjson.dumps(answer)


def _tools(answer: Any) -> list[Any] | None:
    result = answer.get("result") if isinstance(answer, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    return tools if isinstance(tools, list) else None
