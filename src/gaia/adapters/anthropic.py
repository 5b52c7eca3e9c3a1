"""The tools of MCP servers for Anthropic's messages.

The package ``anthropic`` is not required: definitions, calls and results are the dicts and objects of its API.
"""

from __future__ import annotations

from typing import Any, Unpack

from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, member, once_per_tool
from gaia.mcp import MCPTool, ToolResult

__all__ = ["anthropic_tools", "run_tool_call", "run_tool_call_async"]


def anthropic_tools(manager: Manager, **selection: Unpack[SelectionKeywords]) -> list[Any]:
    """The ``tools`` of a request: the present tools of `manager`. Call this for each request.

    `selection` says which tools; see `ToolSelection`. The schemas are shared by all requests: copy one before you
    change what is in it. Dicts of the API have the type `Any`, here and below, so that a type checker accepts them as
    types of the package ``anthropic``.
    """
    return [_definition(tool).copy() for tool in ToolSelection.of(manager, **selection).list_tools()]


def run_tool_call(manager: Manager, tool_use: Any) -> Any:
    """Make a call that the model requests, and return its block ``tool_result``. Thread-safe.

    `tool_use`, an object or a dict, is a block of a message's ``content`` with the type ``tool_use``. The results of
    all such blocks of a message belong in one message of the role ``user``. A failure of the call is a text in the
    block, with ``is_error``, and raises nothing.

    If `manager` is a `ToolSelection`, only its tools are called, with the approvals that it asks for. Raises ValueError
    if `tool_use` is something else.
    """
    name, arguments = _requested(tool_use)
    selection = ToolSelection.of(manager)
    return _answer(selection, tool_use, selection.call(name, arguments))


async def run_tool_call_async(manager: Manager, tool_use: Any) -> Any:
    """Like `run_tool_call`, without blocking the event loop. Cancelling the task cancels the call."""
    name, arguments = _requested(tool_use)
    selection = ToolSelection.of(manager)
    return _answer(selection, tool_use, await selection.call_async(name, arguments))


@once_per_tool
def _definition(tool: MCPTool) -> dict[str, Any]:
    return {
        "name": name_for_model(tool),
        "description": description_for_model(tool),
        "input_schema": input_schema(tool),
    }


def _requested(tool_use: Any) -> tuple[str, dict[str, Any]]:
    if (kind := member(tool_use, "type", None)) != "tool_use":
        raise ValueError(f"expected a block of the type 'tool_use', not {kind!r}")
    return member(tool_use, "name"), member(tool_use, "input")


def _answer(selection: ToolSelection, tool_use: Any, result: ToolResult) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": member(tool_use, "id")}
    if result.is_error:
        # The API accepts only text with an error.
        safe = selection.is_safe(member(tool_use, "name"))
        return {**block, "content": text_for_model(result, safe_to_repeat=safe), "is_error": True}
    content = parts_for_model(result, lambda text: {"type": "text", "text": text}, _image, _pdf)
    return {**block, "content": content}


def _image(data: str, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}


def _pdf(data: str, name: str) -> dict[str, Any]:
    return {**_image(data, "application/pdf"), "type": "document", "title": name}
