"""`ManagerEngine`: the parts of one manager, for `MCPClientManager` and for gaia's own modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gaia.mcp.client.client_factory import ClientFactory
from gaia.mcp.client.client_options import ClientOptions, SharedServices
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.configured_servers import ConfiguredServers
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.readiness import Absence, Goal, Readiness, absence_of, enabled_servers
from gaia.mcp.client.server_registry import Route, ServerRegistry
from gaia.mcp.client.tool_calls import require_tool_name
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.rpc.connection import Recorders
from gaia.mcp.supervision.events import Event, Listeners, ServerState, StateChanged, ToolsChanged
from gaia.mcp.tools.naming import owner_of
from gaia.mcp.tools.tool import MCPTool
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

_TO_BEGIN_SECONDS = 5.0


class ManagerEngine:
    def __init__(
        self,
        config: MCPConfig,
        services: SharedServices,
        defaults: ClientOptions,
        lock_file: Path | None,
        new_client: Callable[[str, Mapping[str, Any]], MCPClient],
    ) -> None:
        """`defaults` apply to settings that an entry leaves out. The other parameters are as in `ClientFactory`."""
        self.config = config
        self.recorders: Recorders = services.recorders
        self.listeners = Listeners()
        self.readiness = Readiness()
        self.registry = ServerRegistry(self.readiness, self._joined)
        self.factory = ClientFactory(self.registry, services, defaults, lock_file, new_client, self._happened)
        self.configured = ConfiguredServers(self.registry, self.readiness, self.factory, self._adopt_config)

    def _adopt_config(self, config: MCPConfig) -> None:
        self.config = config

    def route_of(self, name: str, timeout: float | None = None) -> Route:
        """The route to a tool, listed or not. Raises as `submit_tool` does. May wait for a start to begin."""
        registry = self.registry
        if (listed := registry.routes.get(name)) is not None:
            return listed
        require_tool_name(name)
        if registry.is_about_to_start(name):
            # A thread of `load_from_config` is about to start the server, in whose queue the call then waits.
            seconds = _TO_BEGIN_SECONDS if timeout is None else min(timeout, _TO_BEGIN_SECONDS)
            self.readiness.wait(lambda: not registry.is_about_to_start(name), seconds)
        if (absent := registry.route_to_absent(name)) is not None:
            return absent
        # The registry does not know servers that were never loaded; the longest name owns the tool.
        owner = owner_of(name, filter(None, (registry.owner_of(name), *self.config.get_entries())))
        absent_owner = None if owner is None or owner in registry.connected else self._why_absent(owner)
        error = registry.refusal_of(name) or absent_owner or registry.unknown_tool(name)
        # No client counts this call, so it is counted here.
        metrics.instruments.refused.add(1, {names.ERROR_TYPE: error.error_type})
        raise error

    # Goals: which servers are ready. Threads wait for a goal through `Readiness.wait`, tasks in their own way.

    def all_ready(self) -> Goal[bool]:
        """All started servers are ready; if none was started, all enabled ones."""

        def absences() -> list[Absence]:
            started = [status.name for status in self.registry.status()]
            return self._absences(started or enabled_servers(self.config))

        def is_over() -> bool:
            found = absences()
            return not found or any(absence.is_final for absence in found)

        return Goal(is_over, lambda: not absences())

    def presence_of(self, required: tuple[str, ...]) -> Goal[None]:
        """These servers are ready, by default all enabled ones. The goal fails with `ServerUnavailable`."""
        required = required or tuple(enabled_servers(self.config))

        def check() -> None:
            if missing := self._absences(required):
                raise ServerUnavailable("\n".join(absence.error.message for absence in missing))

        return Goal(lambda: all(absence.is_final for absence in self._absences(required)), check)

    def absence_of(self, tool_name: str) -> ServerUnavailable | None:
        server = self.registry.owner_of(tool_name)
        return None if server is None else self._why_absent(server)

    def _why_absent(self, server: str) -> ServerUnavailable | None:
        absences = self._absences([server])
        return absences[0].error if absences else None

    def _absences(self, servers: Iterable[str]) -> list[Absence]:
        statuses = {status.name: status for status in self.registry.status()}
        connected = self.registry.connected
        found = (absence_of(name, statuses.get(name), self.config, joined=name in connected) for name in servers)
        return [absence for absence in found if absence is not None]

    # Events of the registry and of the clients.

    def _joined(self, name: str, tools: tuple[MCPTool, ...]) -> None:
        self.listeners.publish(ToolsChanged(name, added=tuple(sorted(tool.name for tool in tools))))

    def _happened(self, name: str, client: MCPClient, event: Event) -> None:
        """Runs on the supervisor's thread, or on a thread that connects the client."""
        tools: tuple[MCPTool, ...] = ()
        if isinstance(event, StateChanged) and event.new is ServerState.READY:
            tools = self.registry.came_up(name, client)
        elif isinstance(event, ToolsChanged) and self.registry.is_starting(name):
            # A listener would list tools that cannot be called yet. `_joined` tells it when the server has joined.
            return
        self.listeners.publish(event)
        if tools:
            self._joined(name, tools)
        if isinstance(event, StateChanged):
            self.readiness.changed()
