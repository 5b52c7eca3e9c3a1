"""Tools of MCP servers in an agent's registry: their names, their owners, and the wording of their answers."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Collection, ItemsView, Iterable, ValuesView
from typing import TYPE_CHECKING, Any, Protocol

from gaia.mcp.tools import naming
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

if TYPE_CHECKING:
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager

logger = get_logger(__name__)

_lock = reentrant_lock()
"""Owns what this module writes to registries, because several may share one. Never held while calling out."""

_INSTRUCTION = (
    "Parse this JSON data and provide a human-readable summary. "
    "Your answer must be a plain text string, not a JSON object."
)


class Registry(Protocol):
    """What is needed of a registry: a dict will do, and so will an agent's `ToolRegistry`."""

    def __setitem__(self, key: str, entry: dict[str, Any], /) -> None: ...

    def __delitem__(self, key: str, /) -> None: ...

    def items(self) -> ItemsView[str, dict[str, Any]]: ...

    def values(self) -> ValuesView[dict[str, Any]]: ...

    def copy(self) -> dict[str, dict[str, Any]]: ...


class _Entry(dict[str, Any]):
    """A registry entry with its owner, the only one that removes it, and its position among the server's tools."""

    __slots__ = ("owner", "position")

    def __init__(self, definition: dict[str, Any], owner: RegisteredTools, position: int) -> None:
        super().__init__(definition)
        self.owner = owner
        self.position = position


class RegisteredTools:
    """What the MCP servers of one agent have in its registry. Thread-safe.

    A tool is registered under its plain name, ``mcp_<server>_<tool>``. All tools that compete for one name take their
    hashed forms; one whose plain name belongs to another server keeps it for good, because models remember names of
    servers that are gone. What was not registered here is never replaced. A tool that stays is there at every moment.
    """

    def __init__(self) -> None:
        self._tickets = itertools.count(1)
        self._applied: dict[str, int] = {}
        """The newest ticket of each server that reached the registry, or 0. Owned by `_lock`."""

    def expect(self, servers: Iterable[str]) -> None:
        """Servers that are configured. Names of tools that belong to one of them never lead to another."""
        with _lock:
            for server in servers:
                self._applied.setdefault(server, 0)

    def ticket(self) -> int:
        """A number to take before asking a server for its tools, so that old news never replaces newer."""
        return next(self._tickets)

    def replace(self, registry: Registry, server: str, ticket: int, definitions: Iterable[dict[str, Any]]) -> None:
        """Make `definitions` (registry entries) the tools of `server`, unless a newer ticket has been used."""
        entries = [_Entry(definition, self, position) for position, definition in enumerate(definitions)]
        with _lock:
            if ticket < self._applied.get(server, 0):
                return
            self._applied[server] = ticket
            nameless = _replace(registry, self, server, entries, self._applied)
        for tool in nameless:
            logger.warning("mcp_tool_not_registered", server=server, tool=tool, reason="other tools have its names")

    def remove(self, registry: Registry, server: str) -> None:
        """Remove all tools of `server`, those included that the agent has registered itself."""
        self.replace(registry, server, self.ticket(), [])
        with _lock:
            for key, entry in registry.copy().items():
                if not isinstance(entry, _Entry) and entry.get("_mcp_server") == server:
                    del registry[key]

    def remove_all(self, registry: Registry) -> None:
        with _lock:
            servers = list(self._applied)
        for server in servers:
            self.remove(registry, server)


def _replace(
    registry: Registry, owner: RegisteredTools, server: str, entries: list[_Entry], servers: Collection[str]
) -> list[str]:
    """Put `entries` in the place of those that `owner` has for `server`. Returns the tools that got no name.

    `servers` are all that the owner knows.
    """
    present = [entry for entry in registry.values() if isinstance(entry, _Entry)]
    staying = [entry for entry in present if entry.owner is not owner or entry["_mcp_server"] != server]
    tools = {(entry["_mcp_server"], entry["_mcp_tool_name"]): entry for entry in (*staying, *entries)}
    servers = {*servers, *(one for one, _ in tools)}
    taken = {key for key, entry in registry.items() if not isinstance(entry, _Entry)}
    named: dict[str, _Entry] = {}
    nameless = []
    for name, pair in naming.assign(tools, servers).items():
        key = next((key for key in (name, naming.disambiguated(*pair)) if key not in taken), None)
        if key is None:
            nameless.append(pair[1])
        else:
            taken.add(key)
            named[key] = tools[pair]
    others = naming.folded(servers)
    # First what is new, then what is gone, so that a tool which only moves can be found all the time.
    for key, entry in named.items():
        entry["name"] = key
        own, tool = entry["_mcp_server"], entry["_mcp_tool_name"]
        # Models leave out parts of names; what is left must not be the name of another server's tool.
        aliases = (f"{own}_{tool}", tool)
        entry["_mcp_aliases"] = [alias for alias in aliases if not naming.is_of_another(alias, own, others)]
        registry[key] = entry
    for key, present_entry in registry.copy().items():
        if isinstance(present_entry, _Entry) and key not in named:
            del registry[key]
    return nameless


def definitions_of(client: MCPClient) -> list[dict[str, Any]]:
    """The registry entries of the tools that `client` offers, for `RegisteredTools.replace`."""
    return [
        {
            **tool.to_gaia_format(client.name),
            "_mcp_input_schema": tool.input_schema,
            "_mcp_annotations": tool.annotations,
            "function": with_worded_response(tool.name, client.create_tool_wrapper(tool)),
        }
        for tool in client.list_tools()
    ]


def server_order(manager: MCPClientManager) -> Callable[[], list[str]]:
    """The servers of `manager` in order, whenever it is asked for. Keeps no manager from being dropped."""
    reference = weakref.ref(manager)

    def names() -> list[str]:
        manager = reference()
        listed = None if manager is None else manager.list_servers()
        return listed if isinstance(listed, list) else []

    return names


def with_worded_response(tool_name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its answers worded for a model: ``status`` and what to do with the ``data``.

    Answers that are no dicts pass through unchanged.
    """

    @functools.wraps(function)
    def wrapper(**arguments: Any) -> Any:
        response = function(**arguments)
        if not isinstance(response, dict):
            return response
        result = response if isinstance(response, ToolResult) else ToolResult(response)
        if result.is_error:
            return {"status": "error", "error": result.error, "data": _error_data(result)}
        return {
            "status": "success",
            "message": f"Tool '{tool_name}' returned data",
            # A model need not read twice what the members of every result repeat.
            "data": result.without_defaults(),
            "instruction": _INSTRUCTION,
        }

    return wrapper


def _error_data(result: ToolResult) -> dict[str, Any]:
    """The members of a failure without what the ``error`` says already."""
    data = result.without_defaults()
    if "error_type" in data:
        return data
    texts_only = all(block["type"] == "text" for block in result.content)
    said = ("error", "isError", "content") if texts_only else ("error", "isError")
    return {"error": result.error, **{name: value for name, value in data.items() if name not in said}}
