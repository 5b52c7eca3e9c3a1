"""Tools and their results as a model sees them, for any framework. The functions are pure and thread-safe.

Applications may use these functions for adapters of their own.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from gaia.mcp import ContentBlock, ImageContent, MCPError, MCPTool, TextContent, ToolResult
from gaia.runtime.untrusted_text import parsed_arguments

__all__ = [
    "InvalidArguments",
    "Shown",
    "content_for_model",
    "description_for_model",
    "input_schema",
    "name_for_model",
    "parse_arguments",
    "parts_for_model",
    "text_for_model",
]

Shown: TypeAlias = TextContent | ImageContent
"""A part of a result for a model: ``{"type": "text", …}`` or ``{"type": "image", …}``."""


class _File(TypedDict):
    """A PDF document or a recording; `text` names it where it cannot be shown."""

    type: Literal["file"]
    data: str
    mimeType: str
    name: str
    text: str


_Content: TypeAlias = TextContent | ImageContent | _File

NO_EFFECT = "The call was not sent, so it had no effect."
DO_NOT_REPEAT = (
    "It is not known whether the call took effect. Do not repeat it: it could take effect twice. "
    "Find out first whether it did, or tell the user."
)
MAY_BE_REPEATED = "It may be repeated: the tool is marked as safe to call twice."

IMAGE_TYPES = frozenset(("image/gif", "image/jpeg", "image/png", "image/webp"))

_PDF_TYPE = "application/pdf"

_REJECTIONS = frozenset((-32700, -32600, -32601, -32602, -32042))
"""JSON-RPC codes of calls that the server did not execute."""

Part = TypeVar("Part")


class InvalidArguments(MCPError, ValueError):
    """A model wrote arguments that are not a JSON object. The message is for the model."""

    error_type = "invalid_arguments"


def content_for_model(result: ToolResult, *, safe_to_repeat: bool = False) -> list[Shown]:
    """The texts and images of `result`, in the server's order; never empty.

    Embedded resources count as texts and images. A text with type and size in bytes replaces any other block, such as
    audio or an image type that models do not accept. Without content, the text is the structured content as JSON.

    A failure begins with a text ``Error: …``. If the call may have taken effect (``delivery`` is ``"unknown"``), the
    text tells the model not to repeat the call, unless it is `safe_to_repeat` (`MCPTool.safe_to_repeat`). If the call
    was not sent, the text says so.
    """
    return [part if part["type"] != "file" else _text_block(part["text"]) for part in _contents(result, safe_to_repeat)]


def text_for_model(result: ToolResult, *, safe_to_repeat: bool = False) -> str:
    """`content_for_model` as one text, for frameworks and models without images. Images are named, not shown."""
    parts = content_for_model(result, safe_to_repeat=safe_to_repeat)
    return "\n".join(part["text"] if part["type"] == "text" else _named("image", part, part["data"]) for part in parts)


def parts_for_model(
    result: ToolResult,
    text: Callable[[str], Part],
    image: Callable[[str, str], Part],
    pdf: Callable[[str, str], Part] | None = None,
    audio: Callable[[str, str], Part] | None = None,
    *,
    safe_to_repeat: bool = False,
) -> list[Part]:
    """`content_for_model` in a framework's form: `text` takes a text, `image` its data in base64 and its MIME type.

    `pdf` takes a document's data and its name, `audio` a recording's data and its MIME type. Without these functions, a
    text names what was sent.
    """

    def part_of(shown: _Content) -> Part:
        if shown["type"] == "image":
            return image(shown["data"], shown["mimeType"])
        if shown["type"] == "file":
            is_pdf = shown["mimeType"] == _PDF_TYPE
            if is_pdf and pdf is not None:
                return pdf(shown["data"], shown["name"])
            if not is_pdf and audio is not None:
                return audio(shown["data"], shown["mimeType"])
        return text(shown["text"])

    return [part_of(shown) for shown in _contents(result, safe_to_repeat)]


def name_for_model(tool: MCPTool) -> str:
    """The name for `MCPClientManager.call_tool`; without a manager, the tool's own name."""
    return tool.namespaced_name or tool.name


def description_for_model(tool: MCPTool) -> str:
    """The tool's description, or else its title, or else its name; never empty."""
    return tool.description or tool.title or tool.name


def input_schema(tool: MCPTool) -> dict[str, Any]:
    """The JSON Schema of the tool's arguments: a copy that may be changed, always for an object."""
    schema = copy.deepcopy(tool.input_schema)
    schema["type"] = "object"
    if not isinstance(schema.get("properties"), dict):
        # Endpoints require the member, and some servers leave it out.
        schema["properties"] = {}
    return schema


def parse_arguments(written: dict[str, Any] | str | None) -> dict[str, Any]:
    """The arguments of a model's call, which may be JSON text or a dict. Empty text means no arguments.

    Raises `InvalidArguments` for anything that is not a JSON object.
    """
    try:
        return parsed_arguments(written)
    except ValueError as error:
        raise InvalidArguments(str(error)) from None


def _contents(result: ToolResult, safe_to_repeat: bool) -> list[_Content]:
    if "error_type" in result:
        return [_text_block(_failure(result, safe_to_repeat))]
    shown = [_shown(block) for block in result.content]
    # Some endpoints refuse empty texts.
    shown = [part for part in shown if part["type"] != "text" or part["text"]]
    if result.is_error:
        words = "\n".join(part["text"] for part in shown if part["type"] != "image") or result.error or ""
        error = words if words[:5].lower() == "error" else f"Error: {words}"
        return [_text_block(error), *(part for part in shown if part["type"] == "image")]
    if not shown:
        empty = "(no content)" if result.structured is None else _json(result.structured)
        return [_text_block(empty)]
    return shown


def _failure(result: ToolResult, safe_to_repeat: bool) -> str:
    if result.get("delivery") == "not_sent":
        advice = NO_EFFECT
    elif isinstance(code := result.get("code"), int) and code in _REJECTIONS:
        # The server's own message explains the problem with the call.
        return f"Error: {result.error}"
    else:
        advice = MAY_BE_REPEATED if safe_to_repeat else DO_NOT_REPEAT
    return f"Error: {result.error}\n{advice}"


def _shown(block: ContentBlock) -> _Content:
    members: dict[str, Any] = dict(block)
    if block["type"] == "resource" and isinstance(resource := members.get("resource"), dict):
        if isinstance(text := resource.get("text"), str):
            return _text_block(text)
        members = {"data": resource.get("blob"), **resource, "type": "resource"}
    kind, data, mime_type = members["type"], members.get("data"), members.get("mimeType")
    if kind == "text":
        text = members.get("text")
        return _text_block(text if isinstance(text, str) else _json(text))
    if isinstance(data, str):
        if isinstance(mime_type, str) and mime_type in IMAGE_TYPES and _is_base64(data):
            return {"type": "image", "data": data, "mimeType": mime_type}
        named = _named(kind, members, data)
        if isinstance(mime_type, str) and _is_file(mime_type) and _is_base64(data):
            uri = members.get("uri")
            return _File(
                type="file", data=data, mimeType=mime_type, name=uri if isinstance(uri, str) else kind, text=named
            )
        return _text_block(named)
    # A link, or an unknown kind of block.
    return _text_block(_json({name: value for name, value in members.items() if name != "_meta"}))


def _is_file(mime_type: str) -> bool:
    return mime_type == _PDF_TYPE or mime_type.startswith("audio/")


def _is_base64(data: str) -> bool:
    """Whether `base64.b64decode` accepts the data. Adapters decode without a check, and servers send any data."""
    try:
        return bool(base64.b64decode(data))
    except ValueError:
        return False


def _named(kind: str, members: Any, data: str) -> str:
    size = len(data) * 3 // 4 - data[-2:].count("=")
    told = (kind, members.get("mimeType"), members.get("uri"), f"{size} bytes")
    return f"[{', '.join(str(one) for one in told if one)}]"


def _text_block(text: str) -> TextContent:
    return {"type": "text", "text": text}


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        # Also for an integer of more than 4300 digits.
        return "(too large to show)"
