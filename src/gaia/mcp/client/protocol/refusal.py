"""Why a request of the server is not answered with a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gaia.mcp.client.protocol.messages import INVALID_PARAMS

__all__ = ["Refusal", "optional", "required"]

T = TypeVar("T")


class Refusal(Exception):
    """The JSON-RPC error that the server gets. The message is for the server: it holds nothing that is ours alone."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def required(params: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """A member of the params. Raises `Refusal` if it is missing or of another type."""
    value = optional(params, key, kind)
    if value is None:
        raise Refusal(INVALID_PARAMS, f"{key}: missing")
    return value


def optional(params: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    """A member of the params, None if it is missing. Raises `Refusal` if it is of another type."""
    value = params.get(key)
    # True is an int in Python, and none in JSON.
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
        raise Refusal(INVALID_PARAMS, f"{key}: of the wrong type")
    return value
