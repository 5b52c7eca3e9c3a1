"""The tools of one server as last listed, after filters and pins.

Each definition is measured when it arrives, because unlimited size or nesting would break its later users: models,
logs, terminals, hashes. The limits are far above any honest server's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.supervision.events import ToolsChanged
from gaia.mcp.tools.tool import MCPTool, tool_from_listing
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

MAX_TOOLS = 2_000

MAX_DEFINITION = 256 * 1024
"""Characters of one tool's definition, roughly as in JSON."""

MAX_LISTING = 16 * 1024 * 1024
"""Characters of all tools of one server."""

_MAX_DEPTH = 64
"""Levels of nesting in one definition. References (``$ref``) count where they stand and are not followed."""

_SHOWN = 100


class SortedTools(NamedTuple):
    offered: dict[str, MCPTool]
    denied: frozenset[str]
    blocked: Mapping[str, MCPTool]

    @property
    def names(self) -> list[str]:
        return [*self.offered, *self.denied, *self.blocked]


class ToolCatalog:
    """The tools of one server. Reading takes no lock; `ToolCalls` lets only one thread at a time write."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._by_name: dict[str, MCPTool] = {}
        self.listed = False
        self.denied: frozenset[str] = frozenset()
        self.blocked: Mapping[str, MCPTool] = {}

    @property
    def tools(self) -> tuple[MCPTool, ...]:
        return tuple(self._by_name.values())

    def get(self, name: str) -> MCPTool | None:
        return self._by_name.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def sort(
        self,
        definitions: Sequence[Any],
        allows: Callable[[str], bool],
        blocked_of: Callable[[Mapping[str, MCPTool], Collection[str]], Collection[str]],
    ) -> SortedTools:
        """Sort a listing. ``blocked_of(allowed, names)`` receives all `names` and returns the tools to withhold."""
        tools = {tool.name: tool for tool in self._usable(definitions)}
        allowed = {name: tool for name, tool in tools.items() if allows(name)}
        blocked = blocked_of(allowed, tools)
        return SortedTools(
            {name: tool for name, tool in allowed.items() if name not in blocked},
            frozenset(tools.keys() - allowed.keys()),
            {name: allowed[name] for name in blocked},
        )

    def replace(self, tools: SortedTools | None) -> ToolsChanged | None:
        """Replace the listing; None forgets it. Returns the changes, if any."""
        before, after = self._by_name, {} if tools is None else tools.offered
        self._by_name = after
        self.listed = tools is not None
        self.denied = frozenset() if tools is None else tools.denied
        self.blocked = {} if tools is None else tools.blocked
        if before == after:
            return None
        return ToolsChanged(
            self._server,
            added=tuple(sorted(after.keys() - before.keys())),
            removed=tuple(sorted(before.keys() - after.keys())),
            changed=tuple(sorted(name for name in after.keys() & before.keys() if after[name] != before[name])),
        )

    def _usable(self, definitions: Sequence[Any]) -> Iterator[MCPTool]:
        room = MAX_LISTING
        for number, definition in enumerate(definitions):
            if number >= MAX_TOOLS or room < 0:
                limits = f"{MAX_TOOLS} tools with {MAX_LISTING} characters in all"
                ignored = len(definitions) - number
                logger.warning("tools_ignored", server=self._server, ignored=ignored, kept=number, limits=limits)
                return
            try:
                tool = tool_from_listing(definition)
                room -= size_within_limits(definition)
            except InvalidResponse as error:
                name = definition.get("name") if isinstance(definition, dict) else None
                logger.warning("tool_ignored", server=self._server, tool=str(name)[:_SHOWN], error=error.message)
            else:
                yield tool


def size_within_limits(definition: object) -> int:
    """The size of a definition in characters, roughly. Raises InvalidResponse for a definition beyond the limits."""
    size = 0
    level = [definition]
    # Level by level: recursion could exhaust the stack.
    for _ in range(_MAX_DEPTH):
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                size += len(value)
            elif isinstance(value, Mapping):
                size += sum(len(str(key)) for key in value)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, float) and not math.isfinite(value):
                raise InvalidResponse(f"its definition has a number that JSON does not have: {value}")
        size += 2 * len(level)
        if size > MAX_DEFINITION:
            raise InvalidResponse(f"its definition is longer than {MAX_DEFINITION} characters")
        if not below:
            return size
        level = below
    raise InvalidResponse(f"its definition is nested deeper than {_MAX_DEPTH} levels")
