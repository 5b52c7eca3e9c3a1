"""A tool's arguments from the command line: one JSON object, or words like ``key=value``.

A JSON object may be in a file (``@arguments.json``) or on standard input (``-``). So may a value (``text=@note.md``,
``text=@-``). A value that begins with ``@`` is written with ``@@``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from gaia.cli import terminal, time_limit
from gaia.cli.terminal import usage_error
from gaia.runtime import json_file

_SAY_NOTHING = frozenset({"title", "description", "default", "examples", "deprecated"})

_EXAMPLES = """Examples: timezone=UTC, count=3, text=@note.md; '{"timezone": "UTC"}', @arguments.json, -"""


class Assignments(dict[str, str]):
    """``key=value`` words. The values stay text until the tool's schema is known."""

    def resolve(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments for a tool with this ``inputSchema``.

        A value is parsed as JSON, unless the schema allows the parameter to be a string. A value that is not JSON is a
        string.
        """
        from gaia.mcp.tools.tool import gaia_parameters

        strings = {
            name
            for name, facts in gaia_parameters(schema).items()
            if "string" in str(facts["type"]).split("|") and not _says_nothing(schema, name)
        }
        return {name: value if name in strings else json_or_string(value) for name, value in self.items()}


def parse(words: list[str]) -> dict[str, Any] | Assignments:
    """Check the words and read the files that they name, before a server is started. Raises CommandFailed."""
    if len(words) == 1:
        (word,) = words
        if word == "-" or word.startswith("@"):
            source = word.removeprefix("@")
            return _object(_read(source), place="on standard input" if source == "-" else f"in {source}")
        if word.lstrip().startswith("{"):
            return _object(word)
    return assignments(words)


def assignments(words: list[str]) -> Assignments:
    """Parse words for which only ``key=value`` is possible. Raises CommandFailed."""
    found = Assignments()
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            _refuse(f"the argument {word!r} is neither key=value nor a JSON object")
        if key in found:
            _refuse(f"the argument {key!r} is given twice")
        if value.startswith("@@"):
            value = value[1:]
        elif value.startswith("@"):
            value = _read(value[1:], key)
        found[key] = value
    return found


def _read(source: str, key: str | None = None) -> str:
    """The text of the file `source`, or of standard input for a dash. `key` is the argument, if there is one."""
    try:
        if source == "-":
            if sys.stdin is None or sys.stdin.isatty():
                # Without the note, the command would seem to hang.
                terminal.note("Type the text, then press Ctrl-D:")
            with time_limit.paused():
                return "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(source).expanduser().read_text("utf-8-sig")
    except OSError as error:
        hint = "" if key is None else f"; write {key}=@@{source} for a value that begins with @"
        _refuse(f"{source or 'the file after @'} cannot be read: {error.strerror}{hint}")
    except UnicodeDecodeError as error:
        _refuse(f"{'standard input' if source == '-' else source} is no UTF-8 text: {error}")


def _object(text: str, *, place: str | None = None) -> dict[str, Any]:
    where = "the arguments" if place is None else f"the arguments {place}"
    try:
        value = json_file.parse(text)
    except json.JSONDecodeError as error:
        _refuse(f"{where} are not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except (ValueError, RecursionError) as error:
        _refuse(f"{where} are not usable JSON: {error}")
    if not isinstance(value, dict):
        _refuse(f"{where} are JSON, but not an object")
    return value


def json_or_string(text: str) -> Any:
    try:
        return json_file.parse(text)
    except (ValueError, RecursionError):
        return text


def _says_nothing(schema: Mapping[str, Any], name: str) -> bool:
    properties = schema.get("properties")
    said = properties.get(name) if isinstance(properties, Mapping) else None
    return said is True or (isinstance(said, Mapping) and said.keys() <= _SAY_NOTHING)


def _refuse(message: str) -> NoReturn:
    raise usage_error(message, _EXAMPLES)
