"""`ToolSelection`: the tools of a manager that one agent may use, which calls need a person's approval, and the calls.

All adapters are built on it, and so may be an adapter of your own. Thread-safe.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import operator
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from gaia.adapters.results import InvalidArguments, parse_arguments
from gaia.mcp import MCPClientManager, MCPTool, ToolDenied, ToolFilter, ToolResult
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.runtime.signatures import spells_out

__all__ = ["Approve", "Manager", "ToolSelection", "once_per_tool"]

T = TypeVar("T")

Approve: TypeAlias = Sequence[str] | Callable[[MCPTool, dict[str, Any]], bool]
"""Patterns of tools, or a function of a tool and the arguments: which calls need a person's approval."""
OnApproval: TypeAlias = Callable[[MCPTool, dict[str, Any]], bool | Awaitable[bool]]
OnProgress: TypeAlias = Callable[[str, float, float | None, str | None], object]
"""``on_progress(tool, progress, total, message)``, with the tool's namespaced name."""
Report: TypeAlias = Callable[[float, float | None, str | None], object]


class SelectionKeywords(TypedDict, total=False):
    """The keywords of each adapter; see `ToolSelection`."""

    tools: Sequence[str] | None
    servers: Sequence[str] | None
    exclude: Sequence[str]
    approve: Approve | None
    on_approval: OnApproval | None
    on_progress: OnProgress | None


@dataclass(frozen=True)
class _Options:
    tools: Sequence[str] | None = None
    servers: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    approve: Approve | None = None
    on_approval: OnApproval | None = None
    on_progress: OnProgress | None = None

    def __post_init__(self) -> None:
        for name in ("tools", "servers", "exclude", "approve"):
            if isinstance(patterns := getattr(self, name), Iterable) and not isinstance(patterns, str):
                # The application may change its list. A lone string is an error of `ToolFilter`.
                object.__setattr__(self, name, tuple(patterns))

    @property
    def is_limited(self) -> bool:
        """Whether some tools cannot be called at all, or not at once."""
        return bool(self.tools is not None or self.servers is not None or self.exclude or self.approve is not None)


_NO_LIMITS = _Options()


class ToolSelection:
    """The tools of a manager that one agent may use. Several selections may share a manager and its servers.

    A tool outside the selection is neither listed nor called. Every adapter takes a selection in place of a manager,
    and the keywords of a selection beside a manager.
    """

    @spells_out(SelectionKeywords, _NO_LIMITS)
    def __init__(self, manager: MCPClientManager | AsyncMCPClientManager, **options: Unpack[SelectionKeywords]) -> None:
        """`tools` and `exclude` are shell globs of tools, `servers` of servers; without them, all tools are selected.

        A pattern is compared with the tool's own name and with its name in `manager.list_tools`; see `ToolFilter`.
        `exclude` wins.

        `approve` says which calls need a person's approval: globs of tools, or a function of the `MCPTool` and the
        arguments. `on_approval`, a function of the same, asks the person, and returns whether the call is made; it may
        be a coroutine function where calls are awaited. Without it, the call is approved as in the framework, or
        refused if the framework has no such way.

        ``on_progress(tool, progress, total, message)`` gets the progress of all calls, with the tool's namespaced name.

        Raises ConfigError (a ValueError) for a list of patterns that holds no strings.
        """
        self._options = _Options(**options)
        self.manager = synchronous(manager)
        """The manager. Its owner starts and stops the servers."""
        self._tools = ToolFilter(self._options.tools, self._options.exclude, keys=("tools", "exclude"))
        self._servers = ToolFilter(self._options.servers, keys=("servers", "")).allow
        approve = self._options.approve
        self._approve = approve if callable(approve) else _predicate(ToolFilter(approve or (), keys=("approve", "")))
        self._cached: dict[object, tuple[list[MCPTool], Any]] = {}
        """By what makes it: the listing that it was made of, and what was made. Entries are replaced as a whole."""

    @classmethod
    def of(cls, manager: Manager, **options: Unpack[SelectionKeywords]) -> ToolSelection:
        """`manager` itself if it is a selection, which takes no further `options` (ValueError)."""
        if not isinstance(manager, ToolSelection):
            return cls(manager, **options)
        if options:
            raise ValueError(f"{', '.join(options)}: give this to the ToolSelection, which has all such options")
        return manager

    @classmethod
    def shared(cls, manager: Manager, **options: Unpack[SelectionKeywords]) -> ToolSelection:
        """Like `of`, but the same selection for equal options as long as it is used, so that many agents share it."""
        new = cls.of(manager, **options)
        try:
            return _shared.setdefault((id(new.manager), new._options), new)
        except TypeError:
            # A function among the options cannot be hashed.
            return new

    def apart(self) -> ToolSelection:
        """The same selection for one owner: what is `cached` in it may refer to the owner, and ends with it."""
        return ToolSelection(self.manager, **vars(self._options))

    def is_as(self, other: ToolSelection) -> bool:
        """Whether both select the same tools of the same manager, with the same approvals."""
        return self.manager is other.manager and self._options == other._options

    def list_tools(self) -> list[MCPTool]:
        """The selected tools that the manager offers now."""
        return list(self._by_name().values())

    def cached(self, make: Callable[..., T], *details: Any) -> T:
        """``make(selection, tools, *details)``, made again only when the manager's tools have changed.

        All callers share what was made, and must not change it. The manager replaces its tools whenever a server lists
        others, joins, leaves or is filtered otherwise.
        """
        listed = self.manager.list_tools()
        known = self._cached.get(key := (make, *details))
        if known is not None and len(known[0]) == len(listed) and all(map(operator.is_, known[0], listed)):
            made: T = known[1]
            return made
        made = make(self, [tool for tool in listed if self._selects(tool)], *details)
        self._cached[key] = (listed, made)
        return made

    def each(self, make: Callable[..., T], *details: Any) -> list[T]:
        """A new list with ``make(selection, tool, *details)`` of each selected tool, which is `cached`."""
        return self.cached(_each, make, *details).copy()

    def is_safe(self, name: str) -> bool:
        """Whether the tool with this namespaced name is marked as safe to repeat; False for an unknown tool."""
        tool = self._by_name().get(name)
        return tool is not None and tool.safe_to_repeat

    @property
    def asks_by_framework(self) -> bool:
        """Whether some calls need approval, and the framework has to ask for it because there is no `on_approval`."""
        return self._options.approve is not None and self._options.on_approval is None

    def asks(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the framework has to ask a person about this call. When it has, make the call with `approved`."""
        if not self.asks_by_framework:
            return False
        tool = self._by_name().get(name)
        return tool is not None and self._approve(tool, dict(arguments))

    def call(
        self, name: str, arguments: dict[str, Any] | str | None, *, approved: bool = False, report: Report | None = None
    ) -> ToolResult:
        """Call a tool by its namespaced name; see `MCPClientManager.call_tool`.

        Arguments as text are parsed. Text that is not a JSON object gives an error with the ``error_type``
        ``invalid_arguments``; a tool outside the selection, and a call without the approval that it needs, ``denied``.
        `report` gets the call's progress, as `on_progress` of `call_tool` does.
        """
        try:
            given = parse_arguments(arguments)
            if (on_approval := self._asked(name, given, approved)) is not None:
                if inspect.iscoroutinefunction(self._options.on_approval):
                    raise TypeError("on_approval is a coroutine function, and this call is not awaited")
                if on_approval() is not True:
                    raise _unapproved(name)
            return self.manager.call_tool(name, given, on_progress=self._progress(name, report))
        except (InvalidArguments, ToolDenied) as error:
            return ToolResult.from_error(error)

    async def call_async(
        self, name: str, arguments: dict[str, Any] | str | None, *, approved: bool = False, report: Report | None = None
    ) -> ToolResult:
        """Like `call`, without blocking the event loop. Cancelling the task cancels the call."""
        try:
            given = parse_arguments(arguments)
            if (on_approval := self._asked(name, given, approved)) is not None:
                is_awaited = inspect.iscoroutinefunction(self._options.on_approval)
                if (await on_approval() if is_awaited else await asyncio.to_thread(on_approval)) is not True:
                    raise _unapproved(name)
            manager = AsyncMCPClientManager.over(self.manager)
            return await manager.call_tool(name, given, on_progress=self._progress(name, report))
        except (InvalidArguments, ToolDenied) as error:
            return ToolResult.from_error(error)

    def instructions(self) -> str:
        """What the servers of the selected tools say about their use; empty if they say nothing.

        This text is as trustworthy as the servers: a model obeys it like the application's own instructions.
        """
        texts: dict[str, str] = {}
        for server in dict.fromkeys(tool.server or "" for tool in self.list_tools()):
            client = self.manager.get_client(server)
            if client is not None and client.instructions:
                texts[server] = client.instructions
        return "\n\n".join(f"Instructions of the MCP server {server!r}:\n{text}" for server, text in texts.items())

    def _by_name(self) -> dict[str, MCPTool]:
        return self.cached(_by_name)

    def _selects(self, tool: MCPTool) -> bool:
        server = tool.server or ""
        is_servers = self._servers is None or any(fnmatchcase(server, pattern) for pattern in self._servers)
        return is_servers and self._tools.allows(server, tool.name)

    def _asked(self, name: str, arguments: dict[str, Any], approved: bool) -> Callable[[], Any] | None:
        """`on_approval` for this call; None if it may be made at once. Raises ToolDenied."""
        if not self._options.is_limited:
            return None
        if (tool := self._by_name().get(name)) is None:
            raise ToolDenied(f"this agent has no tool {name!r} now")
        if approved or self._options.approve is None or not self._approve(tool, arguments):
            return None
        if (on_approval := self._options.on_approval) is None:
            raise _unapproved(name)
        return functools.partial(on_approval, tool, arguments)

    def _progress(self, name: str, report: Report | None) -> Report | None:
        on_progress = self._options.on_progress
        if on_progress is None:
            return report
        if report is None:
            return lambda *progress: on_progress(name, *progress)

        def both(*progress: Any) -> object:
            on_progress(name, *progress)
            return report(*progress)

        return both


_shared: weakref.WeakValueDictionary[tuple[int, _Options], ToolSelection] = weakref.WeakValueDictionary()
"""By the identity of the manager, which the selection keeps alive, and the options."""

Manager: TypeAlias = MCPClientManager | AsyncMCPClientManager | ToolSelection
"""What an adapter takes."""


def synchronous(manager: MCPClientManager | AsyncMCPClientManager) -> MCPClientManager:
    """`manager` itself, or the synchronous manager behind an asynchronous one."""
    return manager.sync if isinstance(manager, AsyncMCPClientManager) else manager


def once_per_tool(make: Callable[[MCPTool], T]) -> Callable[[MCPTool], T]:
    """`make`, called once for each tool object, for as long as that exists: many agents share what it returns.

    What it returns must not refer to the tool.
    """
    made: dict[int, tuple[weakref.ref[MCPTool], T]] = {}

    def made_for(tool: MCPTool) -> T:
        identity = id(tool)
        known = made.get(identity)
        if known is not None and known[0]() is tool:
            return known[1]

        def forget(reference: weakref.ref[MCPTool]) -> None:
            # Another tool may have the identity by now.
            if made.get(identity, (None,))[0] is reference:
                made.pop(identity, None)

        result = make(tool)
        made[identity] = (weakref.ref(tool, forget), result)
        return result

    return made_for


def member(thing: Any, name: str, *default: Any) -> Any:
    if isinstance(thing, Mapping):
        return thing.get(name, *default) if default else thing[name]
    return getattr(thing, name, *default)


def _by_name(_: ToolSelection, tools: list[MCPTool]) -> dict[str, MCPTool]:
    return {tool.namespaced_name or tool.name: tool for tool in tools}


def _each(selection: ToolSelection, tools: list[MCPTool], make: Callable[..., T], *details: Any) -> list[T]:
    return [make(selection, tool, *details) for tool in tools]


def _unapproved(name: str) -> ToolDenied:
    return ToolDenied(f"the call of {name!r} needs a person's approval, and does not have it")


def _predicate(patterns: ToolFilter) -> Callable[[MCPTool, dict[str, Any]], bool]:
    return lambda tool, _: patterns.allows(tool.server or "", tool.name)
