"""A tool's arguments as they are typed: one JSON object, or words like ``key=value``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from gaia.cli.command_errors import USAGE, CommandFailed

__all__ = ["Assignments", "parse"]

_SAY_NOTHING = frozenset({"title", "description", "default", "examples", "deprecated"})
"""Keywords of a schema that leave open what a value is."""


class Assignments(dict[str, str]):
    """``key=value`` words, whose values are not understood before the tool's schema is known."""

    def resolve(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments for a tool with this ``inputSchema``.

        A value is the JSON that it is, unless the schema says that the parameter is a string, or could be one; what is
        no JSON is a string in any case.
        """
        from gaia.mcp.client.parameters import gaia_parameters

        known = gaia_parameters(schema)
        strings = {
            name
            for name, facts in known.items()
            if "string" in str(facts["type"]).split("|") and not _says_nothing(schema, name)
        }
        return {name: value if name in strings else _json_or_string(value) for name, value in self.items()}


def parse(words: list[str]) -> dict[str, Any] | Assignments:
    """Check the words before a server is started for them. Raises CommandFailed."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _object(words[0])
    assignments = Assignments()
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            _refuse(f"the argument {word!r} is neither key=value nor a JSON object")
        if key in assignments:
            _refuse(f"the argument {key!r} is given twice")
        assignments[key] = value
    return assignments


def _object(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _refuse(f"the arguments are not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except (ValueError, RecursionError) as error:
        _refuse(f"the arguments are not usable JSON: {error}")
    return value


def _json_or_string(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(word: str) -> NoReturn:
    # Python would read NaN and Infinity, which no server can be sent.
    raise ValueError(f"{word} is not JSON")


def _says_nothing(schema: Mapping[str, Any], name: str) -> bool:
    properties = schema.get("properties")
    said = properties.get(name) if isinstance(properties, Mapping) else None
    return said is True or (isinstance(said, Mapping) and said.keys() <= _SAY_NOTHING)


def _refuse(message: str) -> NoReturn:
    raise CommandFailed(
        message,
        exit_code=USAGE,
        hint="""Examples: timezone=UTC, count=3, '{"timezone": "UTC"}'""",
        error_type="usage",
    )
