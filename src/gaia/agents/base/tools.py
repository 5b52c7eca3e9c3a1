"""The tool registry: the tools that an agent can call, and their names.

An entry looks like this. Only tools of MCP servers have the keys with an underscore, and only native tools that ask for
it have ``requires_confirmation``::

    {
        "name": "mcp_filesystem_read_file",
        "description": "[MCP:filesystem] Read file contents",
        "parameters": {"path": {"type": "string", "required": True, "description": "File path"}},
        "function": <callable taking the parameters by keyword>,
        "atomic": True,
        "_mcp_server": "filesystem",
        "_mcp_tool_name": "read_file",
        "_mcp_input_schema": {"type": "object", "properties": {...}},  # as the server gave it
        "_mcp_annotations": {"readOnlyHint": True},  # as the server gave them
    }

Agents and the MCP client mixin share only this module.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, TypeVar, overload

_TOOL_REGISTRY: dict[str, dict[str, Any]] = {}
"""The registry of the process: tools of the `tool` decorator, and every agent's tools as far as their names are free.

Iterate over a copy (``_TOOL_REGISTRY.copy()``), because other threads add and remove tools of MCP servers.
"""

_MCP_PREFIX = "mcp_"

_collector: ContextVar[Callable[[str, dict[str, Any]], object] | None] = ContextVar("gaia_tool_collector", default=None)
_view: ContextVar[Mapping[str, Mapping[str, Any]] | None] = ContextVar("gaia_tool_view", default=None)

Entry = dict[str, Any]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ToolNotFound(ValueError):
    """No tool has this name. `candidates` are similar names."""

    def __init__(self, name: str, candidates: list[str]) -> None:
        hint = f"; did you mean {', '.join(candidates)}?" if candidates else ""
        super().__init__(f"Unknown tool: {name!r}{hint}")
        self.name, self.candidates = name, candidates


class AmbiguousToolName(ValueError):
    """Several tools have this name. `candidates` are unambiguous names."""

    def __init__(self, name: str, candidates: list[str]) -> None:
        super().__init__(f"Ambiguous tool name: {name!r} could be {', '.join(candidates)}; use one of these names")
        self.name, self.candidates = name, candidates


@overload
def tool(function: _Function, /) -> _Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    atomic: bool = False,
    requires_confirmation: bool = False,
) -> Callable[[_Function], _Function]: ...


def tool(
    function: _Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    atomic: bool = False,
    requires_confirmation: bool = False,
) -> _Function | Callable[[_Function], _Function]:
    """Register a function as a tool, and return it unchanged.

    Works plain (``@tool``) and with options (``@tool(atomic=True)``). Without options the name is the function's name
    and the description its docstring up to the first section (``Args:``, ``Returns:`` …). Types come from the
    annotations, descriptions of parameters from the ``Args:`` section; a parameter without a default is required.

    `atomic`: one call of the tool is a complete task, without further planning. `requires_confirmation` marks a tool
    whose calls a person should see first; see `gaia.agents.base.confirmation`. A second tool of the same name replaces
    the first, so that a module can be reloaded.
    """

    def register(function: _Function) -> _Function:
        prose, parameter_texts = _read_docstring(inspect.getdoc(function) or "")
        tool_name = name or str(getattr(function, "__name__", type(function).__name__))
        entry = {
            "name": tool_name,
            "description": prose if description is None else description,
            "parameters": _describe_parameters(function, parameter_texts),
            "function": function,
            "atomic": atomic,
        }
        if requires_confirmation:
            entry["requires_confirmation"] = True
        _TOOL_REGISTRY[tool_name] = entry
        if (collector := _collector.get()) is not None:
            collector(tool_name, entry)
        return function

    return register if function is None else register(function)


@contextlib.contextmanager
def collect_tools(collector: Callable[[str, dict[str, Any]], object]) -> Iterator[None]:
    """Pass the name and the entry of each tool that this thread registers in the block to `collector`."""
    token = _collector.set(collector)
    try:
        yield
    finally:
        _collector.reset(token)


@contextlib.contextmanager
def viewed_through(registry: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Make `get_tool_display_name` use the working agent's registry."""
    token = _view.set(registry)
    try:
        yield
    finally:
        _view.reset(token)


def get_tool_display_name(tool_name: str) -> str:
    """The name for people: ``tool (server)`` for a tool of an MCP server, any other name unchanged.

    In an agent's console or tools, it is looked up in the agent's registry, otherwise in the process's.
    """
    registry = _view.get()
    entry = (_TOOL_REGISTRY if registry is None else registry).get(tool_name)
    if entry and "_mcp_tool_name" in entry:
        return f"{entry['_mcp_tool_name']} ({entry['_mcp_server']})"
    return tool_name


def resolve_tool_name(name: str, registry: Mapping[str, Mapping[str, Any]]) -> str:
    """Find the registry key of the tool that a model means by `name`.

    The first of these rules that finds a tool decides:

    1. the key itself;
    2. the key without its ``mcp_``, or the server's and the tool's own names as ``server_tool`` or ``mcp_server_tool``;
    3. a tool's own name on its MCP server;
    4. rules 1 to 3 again, whatever the case of the letters.

    Names that belong to another server are left out of the ``_mcp_aliases`` of an entry.

    Raises `AmbiguousToolName` if a rule finds several tools, and `ToolNotFound` if none finds any.
    """
    if name in registry:
        return name
    aliases = {key: _aliases(key, entry) for key, entry in registry.items()}
    for fold in (str, str.casefold):
        wanted = fold(name)
        for rule in range(3):
            matches = [key for key, names in aliases.items() if wanted in map(fold, names[rule])]
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise AmbiguousToolName(name, sorted(matches))
    raise ToolNotFound(name, _close_matches(name, aliases))


def _aliases(key: str, entry: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    if "_mcp_tool_name" not in entry:
        return [key], [], []
    bare = str(entry["_mcp_tool_name"])
    # The key may be shortened or cleaned. This is the name that the server's operator knows.
    qualified = f"{entry.get('_mcp_server')}_{bare}"
    allowed = entry.get("_mcp_aliases", (qualified, bare))
    full = [key.removeprefix(_MCP_PREFIX), *([qualified] if qualified in allowed else [])]
    short = [bare] if bare in allowed else []
    # A name that begins with ``mcp_`` is complete.
    full, short = ([name for name in names if not name.casefold().startswith(_MCP_PREFIX)] for names in (full, short))
    return [key], [*full, *([_MCP_PREFIX + qualified] if qualified in allowed else [])], short


def _close_matches(name: str, aliases: Mapping[str, tuple[list[str], list[str], list[str]]]) -> list[str]:
    by_alias = {alias.casefold(): key for key, names in aliases.items() for alias in (*names[2], *names[1], *names[0])}
    close = difflib.get_close_matches(name.casefold(), by_alias, n=5)
    return list(dict.fromkeys(by_alias[alias] for alias in close))[:3]


_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|Warnings?):\s*$")
_PARAMETER = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    prose: list[str] = []
    texts: dict[str, str] = {}
    section: str | None = None
    parameter, indentation = "", 0
    for line in docstring.splitlines():
        if heading := _SECTION.match(line):
            section, parameter = heading.group(1), ""
        elif section is None:
            prose.append(line)
        elif section in {"Args", "Arguments", "Parameters"} and line.strip():
            depth = len(line) - len(line.lstrip())
            # A deeper line continues the parameter's description, even if it contains a colon.
            entry = None if parameter and depth > indentation else _PARAMETER.match(line.strip())
            if entry:
                parameter, indentation = entry.group(1), depth
                texts[parameter] = entry.group(2).strip()
            elif parameter:
                texts[parameter] = f"{texts[parameter]} {line.strip()}".strip()
    return "\n".join(prose).strip(), texts


def _describe_parameters(function: Callable[..., Any], texts: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - annotations are the author's expressions, and need not mean anything at run time
        hints = {}
    return {
        parameter.name: {
            "type": _type_word(hints.get(parameter.name, parameter.annotation)),
            "required": parameter.default is inspect.Parameter.empty,
            "description": texts.get(parameter.name, ""),
        }
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    }


_SCALAR_WORDS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_NAME_WORDS = {
    **{scalar.__name__: word for scalar, word in _SCALAR_WORDS.items()},
    **dict.fromkeys(["list", "tuple", "set"], "array"),
    "dict": "object",
}
"""For annotations that stayed text because another annotation of the function could not be evaluated."""


def _type_word(annotation: Any) -> str:
    """The JSON type of an annotation. Several types are joined with ``|``, without None, as for MCP tools."""
    origin = typing.get_origin(annotation)
    if origin in {typing.Union, types.UnionType}:
        members = (member for member in typing.get_args(annotation) if member is not types.NoneType)
        return _joined(_type_word(member) for member in members)
    if origin is Literal:
        return _joined(_type_word(type(value)) for value in typing.get_args(annotation))
    if isinstance(annotation, str):
        return _NAME_WORDS.get(annotation, "any")
    kind = origin or annotation
    if not isinstance(kind, type):
        return "any"
    if issubclass(kind, enum.Enum):
        return _joined(_type_word(type(member.value)) for member in kind)
    if kind in _SCALAR_WORDS:
        return _SCALAR_WORDS[kind]
    if issubclass(kind, Mapping):
        return "object"
    return "array" if issubclass(kind, Iterable) and not issubclass(kind, str | bytes) else "any"


def _joined(words: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(words))
    return "any" if "any" in distinct or not distinct else "|".join(distinct)
