"""What a server says of a tool besides its schema ("ToolAnnotations")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def says_safe_to_repeat(annotations: Mapping[str, Any]) -> bool:
    """Whether a second call does no harm (``readOnlyHint`` or ``idempotentHint``)."""
    # Anything but a plain true, such as the string "false", is not a promise.
    return annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True
