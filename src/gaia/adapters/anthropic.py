"""The tools of MCP servers for Anthropic's messages.

The package ``anthropic`` is not required: definitions, calls and results are the dicts and objects of its API.
"""

from __future__ import annotations

from typing import Any

from gaia.adapters.calls import Manager, call_tool, call_tool_async, is_safe, listed, member
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.mcp import ToolResult

__all__ = ["anthropic_tools", "run_tool_call", "run_tool_call_async"]


def anthropic_tools(manager: Manager) -> list[Any]:
    """The ``tools`` of a request: the present tools of `manager`. Call this for each request.

    Dicts of the API have the type `Any`, here and below, so that a type checker accepts them as types of the package
    ``anthropic``.
    """
    return [
        {"name": name_for_model(tool), "description": description_for_model(tool), "input_schema": input_schema(tool)}
        for tool in listed(manager)
    ]


def run_tool_call(manager: Manager, tool_use: Any) -> Any:
    """Make a call that the model requests, and return its block ``tool_result``. Thread-safe.

    `tool_use`, an object or a dict, is a block of a message's ``content`` with the type ``tool_use``. The results of
    all such blocks of a message belong in one message of the role ``user``. A failure of the call is a text in the
    block, with ``is_error``, and raises nothing.

    Raises ValueError if `tool_use` is something else.
    """
    name, arguments = _requested(tool_use)
    return _answer(manager, tool_use, call_tool(manager, name, arguments))


async def run_tool_call_async(manager: Manager, tool_use: Any) -> Any:
    """Like `run_tool_call`, without blocking the event loop. Cancelling the task cancels the call."""
    name, arguments = _requested(tool_use)
    return _answer(manager, tool_use, await call_tool_async(manager, name, arguments))


def _requested(tool_use: Any) -> tuple[str, dict[str, Any]]:
    if (kind := member(tool_use, "type", None)) != "tool_use":
        raise ValueError(f"expected a block of the type 'tool_use', not {kind!r}")
    return member(tool_use, "name"), member(tool_use, "input")


def _answer(manager: Manager, tool_use: Any, result: ToolResult) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": member(tool_use, "id")}
    if result.is_error:
        # The API accepts only text with an error.
        safe = is_safe(manager, member(tool_use, "name"))
        return {**block, "content": text_for_model(result, safe_to_repeat=safe), "is_error": True}
    content = parts_for_model(
        result,
        lambda text: {"type": "text", "text": text},
        lambda data, mime: {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}},
    )
    return {**block, "content": content}
