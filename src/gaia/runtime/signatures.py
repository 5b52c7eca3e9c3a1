"""Signatures as `help`, notebooks and Sphinx show them, for functions that take the keywords of a TypedDict."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def spells_out(keywords: Any, *defaults: object) -> Callable[[F], F]:
    """A decorator for a function with ``**options: Unpack[keywords]``: its signature names each keyword.

    `keywords` is a TypedDict. The default of a keyword is the attribute of that name of the first of `defaults` that
    has it.
    """
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=next(getattr(each, name) for each in defaults if hasattr(each, name)),
            annotation=annotation.__forward_arg__,
        )
        for name, annotation in keywords.__annotations__.items()
    ]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = signature.replace(parameters=[*own, *parameters])  # type: ignore[attr-defined]
        return function

    return decorate
