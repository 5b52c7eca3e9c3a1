"""From what an agent returns to what the protocol sends."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
import orjson
from pydantic import ValidationError


def tool_result(value: Any) -> types.CallToolResult:
    """A result that already has the protocol's form is passed on; anything else becomes JSON, as text and as data."""
    if isinstance(value, dict) and "error_type" in value:
        # A call of ours that failed. Its content says less than ``error_type`` and ``delivery``.
        value = {key: member for key, member in value.items() if key not in ("content", "isError")}
    if isinstance(value, dict) and _is_content(value.get("content")):
        try:
            return types.CallToolResult.model_validate(
                {key: value[key] for key in ("content", "structuredContent", "isError", "_meta") if key in value},
                by_name=False,
            )
        except ValidationError:
            # Blocks of a type that is not the protocol's: data that only looks like a result.
            pass
    text = value if isinstance(value, str) else to_json(value)
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        # Read back from the text, so that both say the same and both are JSON.
        structured_content=orjson.loads(text) if isinstance(value, dict) else None,
        is_error=isinstance(value, dict) and _tells_an_error(value),
    )


def error_result(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def prompt_result(value: Any) -> types.GetPromptResult:
    """Raises pydantic's ValidationError if `value` has none of the forms of `MCPAgent.get_mcp_prompt`."""
    if isinstance(value, str):
        value = {"messages": [{"role": "user", "content": value}]}
    elif isinstance(value, list):
        value = {"messages": value}
    messages = [_message(message) for message in value.get("messages") or []]
    return types.GetPromptResult.model_validate({**value, "messages": messages}, by_name=False)


def resource_result(uri: str, mime_type: str | None, value: Any) -> types.ReadResourceResult:
    """Raises pydantic's ValidationError if `value` says it has ``contents`` and they are none."""
    if isinstance(value, dict) and isinstance(value.get("contents"), list):
        return types.ReadResourceResult.model_validate(value, by_name=False)
    contents: dict[str, Any] = {"uri": uri}
    if isinstance(value, (bytes, bytearray, memoryview)):
        contents["blob"] = base64.b64encode(value).decode("ascii")
        contents["mimeType"] = mime_type or "application/octet-stream"
    elif isinstance(value, str):
        contents["text"] = value
        contents["mimeType"] = mime_type or "text/plain"
    else:
        contents["text"] = to_json(value)
        contents["mimeType"] = mime_type or "application/json"
    return types.ReadResourceResult.model_validate({"contents": [contents]}, by_name=False)


def to_json(value: Any) -> str:
    """JSON of whatever an agent returns: a path, a date or an object of its own is written as text."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return orjson.dumps(value, default=_plain, option=options).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    dump: Callable[[], Any] | None = getattr(value, "model_dump", None)
    return dump() if callable(dump) else str(value)


def _is_content(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content)


def _tells_an_error(value: dict[str, Any]) -> bool:
    # The two forms that agents use: {"error": message} and {"status": "error", …}.
    return bool(value.get("error")) or value.get("status") == "error"


def _message(message: Any) -> Any:
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        return {**message, "content": {"type": "text", "text": message["content"]}}
    return message
