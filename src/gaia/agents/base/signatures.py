"""What functions say of their own parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["declared_parameters", "takes_any_keyword"]


def declared_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """The parameters by name; None for a function that does not say what it takes, as some written in C do not."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def takes_any_keyword(function: Callable[..., Any]) -> bool:
    """Whether the function judges for itself which keywords it knows; so does one that does not say what it takes."""
    parameters = declared_parameters(function)
    return parameters is None or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
