"""The arguments of a tool call: what a model wrote, and whether it fits the tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gaia.agents.base.tool_schema import takes_any_keyword

__all__ = ["MalformedArguments", "argument_problem", "parse_arguments"]

_SHOWN = 500
"""Characters of broken arguments that an error repeats."""


class MalformedArguments(ValueError):
    """What the model wrote as arguments is no JSON object."""


def parse_arguments(text: object) -> dict[str, Any]:
    """The arguments in a model's tool call: a JSON object as text. No text at all means no arguments.

    Raises `MalformedArguments` with a message for the model.
    """
    if isinstance(text, dict):
        # Some endpoints send the object itself.
        return text
    if text is None or (isinstance(text, str) and not text.strip()):
        return {}
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError) as error:
        raise MalformedArguments(
            f"The arguments are not valid JSON ({error}): {_shown(str(text))}. Call the tool again with a JSON object."
        ) from None
    if not isinstance(arguments, dict):
        raise MalformedArguments(f"The arguments must be a JSON object, not {_shown(str(text))}")
    return arguments


def argument_problem(
    name: str, parameters: Mapping[str, Any], function: Callable[..., Any], arguments: object
) -> str | None:
    """What is wrong with the arguments of a call; None if nothing is."""
    if not isinstance(arguments, dict):
        return f"Arguments of tool {name!r} must be an object, not {type(arguments).__name__}"
    problems = []
    missing = [key for key, about in parameters.items() if about.get("required") and key not in arguments]
    if missing:
        problems.append(f"missing required: {', '.join(missing)}")
    unknown = [str(key) for key in arguments if key not in parameters]
    # A function that takes any keyword judges for itself. So do MCP tools: their schemas may allow more than they list.
    if unknown and not takes_any_keyword(function):
        problems.append(f"unknown: {', '.join(unknown)}")
    if not problems:
        return None
    expected = ", ".join(f"{key}{'' if about.get('required') else '?'}" for key, about in parameters.items())
    return f"Wrong arguments for tool {name!r}: {'; '.join(problems)} (it takes: {expected or 'none'})"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
