"""Tools of MCP servers in an agent's registry: names, owners, and the form of answers for a model."""

from __future__ import annotations

import functools
import itertools
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gaia.mcp.config.server_config import ServerConfig, require_servers
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.tools import naming
from gaia.mcp.tools.tool_filter import ALLOW_ALL
from gaia.mcp.tools.tool_result import ToolResult
from gaia.mcp.transports.base import InProcessServer
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.untrusted_text import indented, one_line

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager

logger = get_logger(__name__)

_lock = reentrant_lock()
"""Guards this module's writes to registries, which several agents may share. Never held while calling out."""

_INSTRUCTION = (
    "Parse this JSON data and provide a human-readable summary. "
    "Your answer must be a plain text string, not a JSON object."
)


class Registry(Protocol):
    """The methods of a registry that this module needs: a dict has them, and so has an agent's `ToolRegistry`."""

    def __setitem__(self, key: str, entry: dict[str, Any], /) -> None: ...

    def __delitem__(self, key: str, /) -> None: ...

    def copy(self) -> dict[str, dict[str, Any]]: ...


class _Entry(dict[str, Any]):
    """A registry entry with its owner, which alone removes it, and its position among the server's tools."""

    __slots__ = ("owner", "position")

    def __init__(self, definition: dict[str, Any], owner: RegisteredTools, position: int) -> None:
        super().__init__(definition)
        self.owner, self.position = owner, position


class RegisteredTools:
    """The tools of one agent's MCP servers in its registry. Thread-safe.

    A tool is registered under its plain name, ``mcp_<server>_<tool>``. All tools that compete for one name take their
    hashed forms. A tool whose plain name belongs to another server keeps its hashed form, because models remember names
    of removed servers. Entries of other code are never replaced. A tool that stays is present at every moment.
    """

    def __init__(self) -> None:
        self._tickets = itertools.count(1)
        self._applied: dict[str, int] = {}
        """By server: the newest ticket that reached the registry, or 0. Guarded by `_lock`."""

    def expect(self, servers: Iterable[str]) -> None:
        """Record the configured servers. A tool name that belongs to one of them never leads to another server."""
        with _lock:
            for server in servers:
                self._applied.setdefault(server, 0)

    def ticket(self) -> int:
        """A number to take before asking a server for its tools, so that an old answer never replaces a newer one."""
        return next(self._tickets)

    def replace(self, registry: Registry, server: str, ticket: int, definitions: Iterable[dict[str, Any]]) -> None:
        """Make `definitions` (registry entries) the tools of `server`, unless a newer ticket was used."""
        entries = [_Entry(definition, self, position) for position, definition in enumerate(definitions)]
        with _lock:
            if ticket < self._applied.get(server, 0):
                return
            self._applied[server] = ticket
            nameless = _replace(registry, self, server, entries, self._applied)
        for tool in nameless:
            logger.warning("mcp_tool_not_registered", server=server, tool=tool, reason="other tools have its names")

    def remove(self, registry: Registry, server: str) -> None:
        """Remove all tools of `server`, including those that the agent registered itself."""
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
    """Replace `owner`'s entries for `server`; `servers` are all that it knows.

    Returns the tools without a free name.
    """
    present = registry.copy()
    known = [entry for entry in present.values() if isinstance(entry, _Entry)]
    staying = [entry for entry in known if entry.owner is not owner or entry["_mcp_server"] != server]
    tools = {(entry["_mcp_server"], entry["_mcp_tool_name"]): entry for entry in (*staying, *entries)}
    servers = {*servers, *(one for one, _ in tools)}
    taken = {key for key, entry in present.items() if not isinstance(entry, _Entry)}
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
    # Add first and remove later, so that a tool whose name changes can be found at every moment.
    for key, entry in named.items():
        entry["name"] = key
        own, tool = entry["_mcp_server"], entry["_mcp_tool_name"]
        # Models shorten names. A shortened name must not lead to another server's tool.
        aliases = (f"{own}_{tool}", tool)
        entry["_mcp_aliases"] = [alias for alias in aliases if not naming.is_of_another(alias, own, others)]
        registry[key] = entry
    for key, old in registry.copy().items():
        if isinstance(old, _Entry) and key not in named:
            del registry[key]
    return nameless


def definitions_of(client: MCPClient) -> list[dict[str, Any]]:
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
    """A function that returns the servers of `manager` in order. It holds the manager weakly."""
    reference = weakref.ref(manager)

    def names() -> list[str]:
        manager = reference()
        listed = None if manager is None else manager.list_servers()
        # Tests of applications replace the manager by a mock.
        return listed if isinstance(listed, list) else []

    return names


def with_worded_response(tool_name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function`: dicts get a form for a model, with ``status`` and an instruction about the ``data``."""

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
            # The model need not read members that are the same in every result.
            "data": result.without_defaults(),
            "instruction": _INSTRUCTION,
        }

    return wrapper


def _error_data(result: ToolResult) -> dict[str, Any]:
    data = result.without_defaults()
    if "error_type" in data:
        return data
    texts_only = all(block["type"] == "text" for block in result.content)
    said = ("error", "isError", "content") if texts_only else ("error", "isError")
    return {"error": result.error, **{name: value for name, value in data.items() if name not in said}}


@dataclass(eq=False)
class AgentServers:
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    auto_load: bool = False
    config_file: str | os.PathLike[str] | None = None
    trust_local: bool = True
    options: dict[str, Any] = field(default_factory=lambda: {"tool_filter": ALLOW_ALL, "restart_policy": None})
    debug: bool | None = None

    pending: bool = False
    """Whether `MCPClientMixin.__init__` has run and the object is not fully constructed yet."""

    lock: Any = field(default_factory=reentrant_lock)
    """Guards the next three attributes, so that two threads do not both make a manager."""
    manager: Any = None
    memory_only: bool = False
    """Whether the mixin made `manager` with a configuration without a file."""
    unsubscribe: Callable[[], object] | None = None

    tools: RegisteredTools = field(default_factory=RegisteredTools)
    registry: Registry | None = None


def check_entry(name: str, entry: object) -> None:
    if not isinstance(entry, Mapping):
        raise ValueError(  # noqa: TRY004 - the specification says ValueError
            f"MCP server {name!r} needs a config dict such as {{'command': 'uvx'}}, got {type(entry).__name__}"
        )
    if not entry.get("command") and not entry.get("url") and InProcessServer.KEY not in entry:
        raise ValueError(f"The config of MCP server {name!r} needs a 'command' (or the 'url' of a running server)")


def checked(servers: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    if servers is None:
        return {}
    require_servers(servers)
    for name, entry in servers.items():
        check_entry(name, entry)
        ServerConfig.from_dict(name, entry)
    return dict(servers)


def put_over_files(config: MCPConfig, servers: Mapping[str, Mapping[str, Any]], agent: str) -> MCPConfig:
    """Put `servers` into the memory of `config`, over its files; returns `config`. Logs each server's source."""
    for name, entry in servers.items():
        config.add_server(name, entry, save=False)
    origins: dict[str, list[str]] = {}
    for name in config.get_entries():
        origins.setdefault(str(config.source_of(name) or "code"), []).append(name)
    overrides = config.load_report.get("overrides", [])
    logger.info("mcp_servers_configured", agent=agent, servers=origins, overrides=overrides)
    return config


_ON_THE_WAY = (ServerState.CREATED, ServerState.STARTING, ServerState.AUTHORIZING)
_NAMED = 100


def connected_line(client: MCPClient, file: Path | None = None) -> str:
    names = [one_line(tool.name) for tool in client.list_tools()]
    count = f"{len(names)} tool{'' if len(names) == 1 else 's'}"
    origin = "" if file is None else f" from {file}"
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"✓ {client.name}{origin} ({count})" + (": " + ", ".join(names[:_NAMED] + more) if names else "")


def load_summary(manager: MCPClientManager) -> str:
    connected = manager.list_servers()
    statuses = {status.name: status for status in manager.status()}
    enabled = [name for name, entry in manager.config.get_servers().items() if not entry.get("disabled")]
    lines = []
    # Servers with a status include those with unusable entries.
    for name in dict.fromkeys([*enabled, *statuses]):
        client, status = manager.get_client(name) if name in connected else None, statuses.get(name)
        if client is not None:
            lines.append(connected_line(client, manager.config.source_of(name)))
        elif status is not None and status.state in _ON_THE_WAY:
            lines.append(f"… {name} is {status.state.value}; its tools come when it is ready")
        else:
            reason = f": {status.last_error}" if status is not None and status.last_error else ""
            again = "; it is tried again" if status is not None and status.retry_in is not None else ""
            lines.append(indented(f"✗ {name} failed to connect{reason}{again}"))
    return "\n".join(lines)
