"""Calls of tools as models make them: with a name, and with arguments that may be text. Thread-safe.

Applications may use these functions for adapters of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from gaia.adapters.results import InvalidArguments, parse_arguments
from gaia.mcp import MCPClientManager, MCPTool, ToolResult
from gaia.mcp.aio import AsyncMCPClientManager

__all__ = ["Manager", "call_tool", "call_tool_async", "is_safe", "synchronous"]

Manager: TypeAlias = MCPClientManager | AsyncMCPClientManager


def synchronous(manager: Manager) -> MCPClientManager:
    """`manager` itself, or the synchronous manager behind an asynchronous one."""
    return manager.sync if isinstance(manager, AsyncMCPClientManager) else manager


def listed(manager: Manager) -> list[MCPTool]:
    return synchronous(manager).list_tools()


def call_tool(manager: Manager, name: str, arguments: dict[str, Any] | str | None) -> ToolResult:
    """Call a tool by its namespaced name; see `MCPClientManager.call_tool`.

    Arguments as text are parsed. Text that is not a JSON object gives an error with the ``error_type``
    ``invalid_arguments``.
    """
    try:
        return synchronous(manager).call_tool(name, parse_arguments(arguments))
    except InvalidArguments as error:
        return ToolResult.from_error(error)


async def call_tool_async(manager: Manager, name: str, arguments: dict[str, Any] | str | None) -> ToolResult:
    """Like `call_tool`, without blocking the event loop. Cancelling the task cancels the call."""
    if isinstance(manager, MCPClientManager):
        manager = AsyncMCPClientManager.over(manager)
    try:
        return await manager.call_tool(name, parse_arguments(arguments))
    except InvalidArguments as error:
        return ToolResult.from_error(error)


def is_safe(manager: Manager, name: str) -> bool:
    """Whether the tool with this namespaced name is marked as safe to repeat; False for an unknown tool."""
    return any(tool.namespaced_name == name and tool.safe_to_repeat for tool in listed(manager))


def member(thing: Any, name: str, *default: Any) -> Any:
    if isinstance(thing, Mapping):
        return thing.get(name, *default) if default else thing[name]
    return getattr(thing, name, *default)
