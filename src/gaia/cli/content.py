"""Content blocks of tools, prompts and resources as text."""

from __future__ import annotations

import json
from typing import Any


def readable(block: Any) -> str:
    """One content block (specification, "Tool Result") as text; what is no text is named."""
    match block:
        case {"type": "text", "text": text}:
            return str(text)
        case {"type": "resource", "resource": {"text": text}}:
            return str(text)
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource {uri}]"
        case {"type": "resource_link", "uri": uri}:
            return f"[resource {uri}]"
        case {"type": "image" | "audio" as kind, "data": str(data), **others}:
            return _bytes(kind, data, others.get("mimeType"))
        case _:
            return json.dumps(block, ensure_ascii=False)


def readable_resource(content: Any) -> str:
    """One item of the contents of a resource as text; bytes are named."""
    match content:
        case {"text": text}:
            return str(text)
        case {"blob": str(blob), **others}:
            return _bytes("data", blob, others.get("mimeType"))
        case _:
            return json.dumps(content, ensure_ascii=False)


def _bytes(kind: str, base64: str, media_type: Any) -> str:
    # Four characters are three bytes, and each = at the end is a byte less.
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"[{kind}, {media_type or 'of unknown type'}, {size} bytes]"
