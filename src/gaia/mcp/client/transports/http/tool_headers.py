"""Arguments that a tool wants to see as HTTP headers too (2026-07-28, "Streamable HTTP": "Custom Headers").

A property of the tool's input schema is marked with ``x-mcp-header``; its value is then sent as ``Mcp-Param-<mark>``.
A tool whose marks are invalid must not be offered: nobody could call it in the way that it demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gaia.log import get_logger
from gaia.mcp.client.transports.http.headers import encode_value

__all__ = ["InvalidMark", "ToolHeaders", "marks"]

logger = get_logger(__name__)

_MARK = "x-mcp-header"
_PREFIX = "Mcp-Param-"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("string", "integer", "boolean")
"""Not numbers: they are not written alike everywhere."""

_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are no schemas."""
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

_SHOWN = 100

Path = tuple[str, ...]
"""The names of properties, from the outermost to the one that is marked."""


class InvalidMark(ValueError):
    """A tool's schema marks something that cannot be a header."""


class ToolHeaders:
    """The marks of one server's tools. `learn` and `of` may be called from any thread."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._marks: dict[str, dict[Path, str]] = {}
        """By tool. Each value is replaced as a whole."""

    def learn(self, tools: list[Any]) -> list[Any]:
        """Note the marks of the tools that a server lists; returns those that may be offered."""
        offered = []
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                # What it is, is for others to judge.
                offered.append(tool)
                continue
            try:
                self._marks[name] = marks(tool.get("inputSchema"))
            except InvalidMark as reason:
                self._marks.pop(name, None)
                logger.warning("tool_excluded", server=self._server, tool=name[:_SHOWN], reason=str(reason))
            else:
                offered.append(tool)
        return offered

    def of(self, params: Mapping[str, Any] | None) -> dict[str, str]:
        """The headers of a tool call. An argument that is missing or null has none."""
        if params is None:
            return {}
        headers = {}
        for path, mark in self._marks.get(str(params.get("name")), {}).items():
            value = _value_at(params.get("arguments"), path)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, (str, int)):
                headers[_PREFIX + mark] = encode_value(value)
        return headers


def marks(schema: Any) -> dict[Path, str]:
    """The marked properties of an input schema. Raises `InvalidMark`."""
    found: dict[Path, str] = {}
    for path, part in _schemas(schema, ()):
        if _MARK not in part:
            continue
        if not path:
            raise InvalidMark(f"{_MARK} stands where it marks no property that is always in the same place")
        mark, where = part[_MARK], ".".join(path)[:_SHOWN]
        if not isinstance(mark, str) or not _TOKEN.fullmatch(mark):
            raise InvalidMark(f"property {where!r}: its {_MARK} is not the name of a header")
        if part.get("type") not in _TYPES:
            raise InvalidMark(f"property {where!r}: only a {', '.join(_TYPES)} can be a header")
        if mark.lower() in (other.lower() for other in found.values()):
            raise InvalidMark(f"property {where!r}: the header {mark!r} is taken by another property")
        found[path] = mark
    return found


def _schemas(root: Any, start: Path) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every schema in a schema, with the path of those that are reached through ``properties`` alone.

    Without recursion: a schema may be nested more deeply than Python's stack allows.
    """
    waiting: list[tuple[Path | None, Any]] = [(start, root)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, list):
            waiting += [(None, item) for item in part]
        elif isinstance(part, dict):
            yield path, part
            for keyword, value in part.items():
                if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
                    below = path if keyword == "properties" else None
                    waiting += [(None if below is None else (*below, name), item) for name, item in value.items()]
                elif keyword not in _DATA and keyword != _MARK:
                    waiting.append((None, value))


def _value_at(arguments: Any, path: Path) -> Any:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments
