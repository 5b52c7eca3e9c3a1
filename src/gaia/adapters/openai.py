"""The tools of MCP servers for OpenAI's chat completions and responses, and for compatible endpoints.

The package ``openai`` is not required: definitions, calls and results are the dicts and objects of its API.
"""

from __future__ import annotations

from typing import Any, Literal, Unpack

from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, member, once_per_tool
from gaia.mcp import MCPTool, ToolResult

__all__ = ["openai_tools", "run_tool_call", "run_tool_call_async"]


def openai_tools(
    manager: Manager, api: Literal["chat", "responses"] = "chat", **selection: Unpack[SelectionKeywords]
) -> list[Any]:
    """The ``tools`` of a request: the present tools of `manager`. Call this for each request.

    The two APIs write definitions differently: `api` is ``"chat"`` for ``client.chat.completions``, and ``"responses"``
    for ``client.responses``. The schemas are the servers' own, so they are not for the ``strict`` mode. They are shared
    by all requests: copy one before you change what is in it. Dicts of the API have the type `Any`, here and below, so
    that a type checker accepts them as types of the package ``openai``.

    `selection` says which tools; see `ToolSelection`. Raises ValueError for another `api`.
    """
    if api not in ("chat", "responses"):
        raise ValueError(f"api: must be 'chat' or 'responses', got {api!r}")
    functions = [_function(tool) for tool in ToolSelection.of(manager, **selection).list_tools()]
    if api == "chat":
        return [{"type": "function", "function": function.copy()} for function in functions]
    # In this API, `strict` would be the default.
    return [{"type": "function", "strict": False, **function} for function in functions]


def run_tool_call(manager: Manager, tool_call: Any) -> Any:
    """Make a call that the model requests, and return the item for the conversation. Thread-safe.

    `tool_call`, an object or a dict, is one of ``message.tool_calls`` of a chat completion, or an item of a response's
    ``output`` with the type ``function_call``. The answer is a message of the role ``tool``, or an item with the type
    ``function_call_output``. A failure of the call, and arguments that are not JSON, are a text in it and raise
    nothing. A message of the role ``tool`` cannot hold images, so it only names them.

    If `manager` is a `ToolSelection`, only its tools are called, with the approvals that it asks for. Raises ValueError
    if `tool_call` is something else.
    """
    name, arguments = _requested(tool_call)
    selection = ToolSelection.of(manager)
    return _answer(selection, tool_call, name, selection.call(name, arguments))


async def run_tool_call_async(manager: Manager, tool_call: Any) -> Any:
    """Like `run_tool_call`, without blocking the event loop. Cancelling the task cancels the call."""
    name, arguments = _requested(tool_call)
    selection = ToolSelection.of(manager)
    return _answer(selection, tool_call, name, await selection.call_async(name, arguments))


@once_per_tool
def _function(tool: MCPTool) -> dict[str, Any]:
    return {"name": name_for_model(tool), "description": description_for_model(tool), "parameters": input_schema(tool)}


def _requested(tool_call: Any) -> tuple[str, str]:
    kind = member(tool_call, "type", None)
    if kind not in ("function", "function_call"):
        raise ValueError(f"expected a call of the type 'function' or 'function_call', not {kind!r}")
    function = member(tool_call, "function") if kind == "function" else tool_call
    return member(function, "name"), member(function, "arguments")


def _answer(selection: ToolSelection, tool_call: Any, name: str, result: ToolResult) -> dict[str, Any]:
    safe = result.is_error and selection.is_safe(name)
    if member(tool_call, "type") == "function":
        content = text_for_model(result, safe_to_repeat=safe)
        return {"role": "tool", "tool_call_id": member(tool_call, "id"), "content": content}
    output = parts_for_model(
        result,
        lambda text: {"type": "input_text", "text": text},
        lambda data, mime: {"type": "input_image", "image_url": f"data:{mime};base64,{data}", "detail": "auto"},
        lambda data, name: {"type": "input_file", "filename": name, "file_data": f"data:application/pdf;base64,{data}"},
        safe_to_repeat=safe,
    )
    return {"type": "function_call_output", "call_id": member(tool_call, "call_id"), "output": output}
