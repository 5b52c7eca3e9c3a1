"""The HTTP headers of a request, for proxies that do not read bodies (2026-07-28, "Streamable HTTP").

"Request Metadata": the method, and the request's subject. "Custom Headers": a tool marks properties of its input schema
with ``x-mcp-header``, and the client sends their values as ``Mcp-Param-<mark>``. The client must not offer a tool with
invalid marks, because it cannot call it as demanded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from gaia.mcp.protocol.exchange import Exchange, paginate

HEADER_MISMATCH = -32020
"""The error of a server that received headers which disagree with the body."""

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that names a request's subject."""

_PLAIN = re.compile(r"[\x20-\x7e]*")
_SENTINEL = re.compile(r"=\?base64\?.*\?=", re.DOTALL)

_MARK = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("string", "integer", "boolean")
"""Not numbers: languages write them differently."""

_DATA = frozenset({"const", "default", "enum", "examples"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

_MAX_SHOWN = 100

_MAX_TOOLS = 2_000
"""Marked tools of one server: as many as a server may offer."""

_MAX_MARKS = 64
"""Marks of one tool. Servers accept about 100 headers, and 8 KiB of them."""

Path = tuple[str, ...]
"""The names of the properties from the outermost to the marked one."""


_FRAMING = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive"),
        *("accept", "accept-encoding", "cookie", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_FRAMING_PREFIXES = ("mcp-", "proxy-", "gaia-")
"""Headers of one connection, of the message's form, and of the protocol: the client sets them."""


class InvalidMark(ValueError): ...


def require_own_headers(headers: Any) -> dict[str, str]:
    """The headers of one call, in a dict of their own. Raises ValueError, which shows no values, for unusable ones."""
    if not isinstance(headers, Mapping):
        raise ValueError(f"headers: expected a dict of texts, not {type(headers).__name__}")  # noqa: TRY004 - as below
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"headers: {str(name)[:_MAX_SHOWN]!r} is not the name of a header")
        if name.lower() in _FRAMING or name.lower().startswith(_FRAMING_PREFIXES):
            raise ValueError(f"headers.{name}: the client sets it; a call cannot")
        if not isinstance(value, str) or not (value.isascii() and value.replace("\t", " ").isprintable()):
            raise ValueError(f"headers.{name}: the value must be a text without line breaks, accents and the like")
    return {name: value.strip() for name, value in headers.items()}


class RequestHeaders:
    """The headers of requests to one server, as far as its tools are known. Thread-safe."""

    def __init__(self, on_excluded: Callable[[str, InvalidMark], None]) -> None:
        """`on_excluded` receives the name of each listed tool that must not be offered, and the reason."""
        self._on_excluded = on_excluded
        self._marks: dict[str, dict[Path, str]] = {}
        self._listing: dict[str, dict[Path, str]] = {}
        """The marks found by the current listing. Both dicts, and each value in them, are replaced as a whole."""
        self._last: tuple[tuple[str, Any] | None, dict[str, str]] = (None, {})
        """The method and the name of the last message, and its headers without marks: most messages have the same."""

    def of(self, method: str | None, params: Mapping[str, Any] | None) -> dict[str, str]:
        """The headers of one message, not to be changed. A missing or null argument of a tool has none."""
        if method is None:
            return {}
        about = (params or {}).get(_NAMED_BY.get(method, ""))
        key, headers = self._last
        if key != (method, about):
            headers = {"Mcp-Method": encode_value(method)}
            if isinstance(about, str):
                headers["Mcp-Name"] = encode_value(about)
            self._last = ((method, about), headers)
        if method == "tools/call" and params is not None and (found := self._marks.get(str(about))):
            headers = headers.copy()
            for path, mark in found.items():
                arguments = params.get("arguments")
                if isinstance(arguments, orjson.Fragment):
                    # A gateway passes arguments on as JSON.
                    arguments = orjson.loads(orjson.dumps(arguments))
                text = parameter_text(arguments, path)
                if text is not None:
                    headers[f"Mcp-Param-{mark}"] = encode_value(text)
        return headers

    def learn(self, method: str | None, params: Mapping[str, Any] | None, answer: bytes) -> bytes:
        """Learn the marks from an answer; returns it without the tools that must not be offered."""
        if method != "tools/list":
            return answer
        try:
            message = orjson.loads(answer)
        except orjson.JSONDecodeError:
            return answer
        result = message.get("result") if isinstance(message, dict) else None
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return answer
        is_first, is_last = (params or {}).get("cursor") is None, message["result"].get("nextCursor") is None
        offered = self.learn_tools(tools, is_first=is_first, is_last=is_last)
        if len(offered) == len(tools):
            return answer
        message["result"]["tools"] = offered
        return orjson.dumps(message)

    def learn_tools(self, tools: list[Any], *, is_first: bool = True, is_last: bool = True) -> list[Any]:
        """Learn the marks of the tools on one page of a listing; returns the tools that may be offered.

        After the last page, tools that are no longer listed are forgotten. If two listings overlap, listed tools may be
        forgotten too: the server refuses their next call with `HEADER_MISMATCH`, and the client lists again.
        """
        if is_first:
            self._listing = {}
        listing, offered = self._listing, []
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            # Other code judges an item without a name.
            if isinstance(name, str):
                try:
                    found = marks(tool.get("inputSchema"))
                except InvalidMark as reason:
                    self._marks.pop(name, None)
                    self._on_excluded(name, reason)
                    continue
                if found and len(listing) < _MAX_TOOLS:
                    listing[name] = found
                    if len(self._marks) < 2 * _MAX_TOOLS or name in self._marks:
                        # Calls may come before the last page, which may never come.
                        self._marks[name] = found
            offered.append(tool)
        if is_last:
            self._marks = listing
        return offered

    def update(self, method: str | None) -> Exchange[None] | None:
        """An exchange that learns the marks again after `HEADER_MISMATCH`; None for methods other than a tool call."""

        def list_tools() -> Exchange[None]:
            self.learn_tools((yield from paginate("tools/list", "tools")))

        return list_tools() if method == "tools/call" else None


def parameter_text(arguments: Any, path: Path) -> str | None:
    """The argument at `path` as text for a header; None if it is missing, null, or has no such text."""
    value = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _text_of(value) if isinstance(value, (str, int)) else None


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def encode_value(value: Any) -> str:
    """`value` in a header: plain, or in Base64 between marks if the plain text would not arrive unchanged."""
    text = _text_of(value)
    if _PLAIN.fullmatch(text) and text == text.strip() and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


def marks(schema: Any) -> dict[Path, str]:
    """The marked properties of an input schema. Raises `InvalidMark`."""
    found: dict[Path, str] = {}
    for path, part in _schemas(schema):
        if _MARK not in part:
            continue
        if not path:
            raise InvalidMark(f"{_MARK} stands where it marks no property that is always in the same place")
        mark, where = part[_MARK], ".".join(path)[:_MAX_SHOWN]
        if not isinstance(mark, str) or not _TOKEN.fullmatch(mark):
            raise InvalidMark(f"property {where!r}: its {_MARK} is not the name of a header")
        if part.get("type") not in _TYPES:
            raise InvalidMark(f"property {where!r}: only a {', '.join(_TYPES)} can be a header")
        if mark.lower() in (other.lower() for other in found.values()):
            raise InvalidMark(f"property {where!r}: the header {mark!r} is taken by another property")
        if len(found) == _MAX_MARKS:
            raise InvalidMark(f"more than {_MAX_MARKS} properties are marked")
        found[path] = mark
    return found


def _schemas(root: Any) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every schema within a schema, without recursion; with its path if it is reached through ``properties`` alone."""
    waiting: list[tuple[Path | None, Any]] = [((), root)]
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
