"""Which servers an agent has: those that its code declares, before those of files, and the manager that runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gaia.mcp.config.server_config import ServerConfig, require_servers
from gaia.mcp.registration import RegisteredTools, Registry
from gaia.mcp.tools.tool_filter import ALLOW_ALL
from gaia.mcp.transports.base import InProcessServer
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

if TYPE_CHECKING:
    from gaia.mcp.client.config import MCPConfig

logger = get_logger(__name__)


@dataclass(eq=False)
class AgentServers:
    """What `MCPClientMixin` knows about one agent: its settings, its manager, and the tools that it registered."""

    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the constructor was given as ``mcp_servers``."""
    auto_load: bool = False
    """Whether the servers of the stacked configuration files are connected when the agent is constructed."""
    config_file: str | os.PathLike[str] | None = None
    trust_local: bool = True
    options: dict[str, Any] = field(default_factory=lambda: {"tool_filter": ALLOW_ALL, "restart_policy": None})
    """Further arguments of the manager."""
    debug: bool | None = None

    pending: bool = False
    """Whether `MCPClientMixin.__init__` has run and the end of the construction has not come."""

    lock: Any = field(default_factory=reentrant_lock)
    """Owns the next three, so that two threads that need a manager first make only one."""
    manager: Any = None
    memory_only: bool = False
    """Whether the mixin has made `manager`, and its configuration has no file."""
    unsubscribe: Callable[[], object] | None = None

    tools: RegisteredTools = field(default_factory=RegisteredTools)
    registry: Registry | None = None
    """Of a host that has none."""


def check_entry(name: str, entry: object) -> None:
    """Raise ValueError if `entry` cannot be the one of a server: the mistake is in the code that declares it."""
    if not isinstance(entry, Mapping):
        raise ValueError(  # noqa: TRY004 - the specification says ValueError
            f"MCP server {name!r} needs a config dict such as {{'command': 'uvx'}}, got {type(entry).__name__}"
        )
    if not entry.get("command") and not entry.get("url") and InProcessServer.KEY not in entry:
        raise ValueError(f"The config of MCP server {name!r} needs a 'command' (or the 'url' of a running server)")


def checked(servers: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    """`servers`, all of whose entries can be used. Raises ValueError: one that cannot is a mistake in the code."""
    if servers is None:
        return {}
    require_servers(servers)
    for name, entry in servers.items():
        check_entry(name, entry)
        ServerConfig.from_dict(name, entry)
    return dict(servers)


def put_over_files(config: MCPConfig, servers: Mapping[str, Mapping[str, Any]], agent: str) -> MCPConfig:
    """Put `servers` into the memory of `config`, over what its files say; returns `config`.

    Logs for `agent`, the name of its class, which servers come from which file.
    """
    for name, entry in servers.items():
        config.add_server(name, entry, save=False)
    origins: dict[str, list[str]] = {}
    for name in config.get_entries():
        origins.setdefault(str(config.source_of(name) or "code"), []).append(name)
    overrides = config.load_report.get("overrides", [])
    logger.info("mcp_servers_configured", agent=agent, servers=origins, overrides=overrides)
    return config
