"""The servers behind the gateway, with their last known lists, also during a restart."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal

from gaia.mcp.aio.calls import run
from gaia.mcp.aio.threads import stop_soon
from gaia.mcp.client.features import LOG_LEVELS
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.config.server_config import Instances
from gaia.mcp.errors import MCPError
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.instances.handles import Handles, owner_of_session
from gaia.mcp.gateway.instances.instances import InstancePool
from gaia.mcp.gateway.messages import severity
from gaia.mcp.gateway.upstream.rounds import Rounds
from gaia.mcp.gateway.upstream.sealing import StateSeal
from gaia.mcp.gateway.views.cached_list import CachedList
from gaia.mcp.supervision.events import (
    Event,
    PromptsChanged,
    ResourcesChanged,
    ResourceUpdated,
    ServerLog,
    ServerState,
    StateChanged,
    ToolsChanged,
)
from gaia.mcp.supervision.status import ServerStatus
from gaia.runtime.log import get_logger
from gaia.runtime.loop_work import LoopWork

logger = get_logger(__name__)

Kind = Literal["tools", "prompts", "resources"]

_STARTING = (ServerState.CREATED, ServerState.STARTING, ServerState.READY)
"""States of a server that has not joined the others yet and may join at any moment."""


class UpstreamServer:
    """One server. Belongs to the gateway's event loop."""

    def __init__(
        self,
        name: str,
        client: MCPClient,
        instances: InstancePool,
        on_listed: Callable[[str, Kind, bool], None],
    ) -> None:
        """``on_listed(name, kind, was_known)`` follows each change of a list.

        All lists come from the shared process.
        """
        self.name = name
        self.client = client
        self.instances = instances
        features = client._engine.features

        def known(capability: Kind, key: str, listing: Callable[[], Any]) -> CachedList:
            return CachedList(client, capability, key, listing, functools.partial(on_listed, name, capability))

        self.prompts = known("prompts", "name", features.list_prompts)
        self.resources = known("resources", "uri", features.list_resources)
        self.templates = known("resources", "uriTemplate", features.list_resource_templates)
        self._lists = (self.prompts, self.resources, self.templates)
        self.has_settled = False
        """Whether the first start has succeeded, failed or taken too long; see `UpstreamServers.settled`."""
        self._log_level: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """asyncio refers to tasks only weakly, so this set keeps them alive."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Empty before the first handshake."""
        return self.client.capabilities

    @property
    def speaks_stateless(self) -> bool:
        """Whether the server speaks the stateless era, as far as known. There, each request has its own log level."""
        return self.client._engine.requests.is_stateless

    @property
    def instances_kind(self) -> Instances:
        entry = self.client._engine.entry
        return "shared" if entry is None else entry.instances

    def is_process_of(self, process: MCPClient, session: object, identity: str) -> bool:
        """Whether requests in this session of the client `identity` go to the unshared `process`."""
        owner = self.instances.owner_of(process)
        return owner is not None and owner == owner_of_session(session, identity, self.instances_kind)

    def process_of(self, owner: Hashable) -> MCPClient:
        """The client of an owner's process; without an owner, of the shared process. Raises Overloaded for too many."""
        return self.client if owner is None else self.instances.client_of(owner)

    def want_log_level(self, level: str) -> None:
        """Ask the server for log messages of this level and above, unless it already sends lower levels."""
        if level not in LOG_LEVELS or self.speaks_stateless or "logging" not in self.capabilities:
            return
        if self._log_level is None or severity(level) < self._log_level:
            self._log_level = severity(level)
            for client in (self.client, *self.instances.clients()):
                # Also applies to later starts of the process.
                client._engine.subscriptions.set_log_level(level)
                if client.is_connected():
                    task = asyncio.get_running_loop().create_task(self._set_log_level(client, level))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _set_log_level(self, client: MCPClient, level: str) -> None:
        try:
            await run(client._engine.requests, client._engine.features.set_logging_level(level))
        except MCPError as error:
            logger.warning("gateway_log_level_refused", server=self.name, error=error.message)

    def happened(self, event: Event) -> None:
        is_new = isinstance(event, StateChanged) and event.new is ServerState.READY
        for one, changed in zip(self._lists, (PromptsChanged, ResourcesChanged, ResourcesChanged), strict=True):
            if is_new or isinstance(event, changed):
                one.outdated(is_announced=not is_new)

    def stop(self) -> list[Callable[[], None]]:
        """Stop all tasks, and begin to end the instances. Each returned function waits for one end."""
        for one in self._lists:
            one.stop()
        for task in self._tasks:
            task.cancel()
        return self.instances.close()


class UpstreamServers:
    """All servers of a manager, in its order. Belongs to the gateway's event loop."""

    def __init__(self, manager: MCPClientManager, seal: StateSeal | None = None) -> None:
        """`seal` encrypts states between two rounds. None: a seal with a key that no other gateway has."""
        self.manager = manager
        self.rounds = Rounds(seal)
        self.checks = Checks()
        self.handles = Handles(
            time.monotonic,
            self.release,
            lambda: self.checks.shares.settings.handles_per_client,
            seal=seal if seal is not None and seal.is_shared else None,
        )
        self._version = 0
        self._routes: object = None
        """The manager's routes at the current version. Each change makes a new object."""
        self.on_event: Callable[[ResourceUpdated | ServerLog, MCPClient | None], None] = lambda *_: None
        """Receives changed resources and log messages with their process; None stands for the shared process."""
        self.on_changed: Callable[[str, Kind], None] = lambda *_: None
        self._servers: dict[str, UpstreamServer] = {}
        self._inbox: LoopWork | None = None
        self._following = contextlib.ExitStack()
        self._waiting: dict[object, tuple[Callable[[], bool], Callable[[], None], asyncio.TimerHandle]] = {}

    def start(self, inbox: LoopWork) -> None:
        self._inbox = inbox
        self._following.callback(self.manager.subscribe(lambda event: inbox.post(lambda: self._happened(event))))
        self._following.enter_context(self.manager._engine.readiness.watched(lambda: inbox.post(self.look)))

    def end_instances(self) -> list[Callable[[], None]]:
        """Begin to end all processes of sessions and clients. Each returned function waits for one end."""
        return [end for server in self._servers.values() for end in server.instances.close(at_once=True)]

    def stop(self) -> None:
        """Forget all servers, and call the waiting functions. `end_instances` comes first."""
        self._following.close()
        self.rounds.close()
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
        for key in list(self._waiting):
            self._waited(key)

    def release(self, owner: Hashable) -> None:
        for server in self._servers.values():
            server.instances.release(owner)

    def get(self, name: str) -> UpstreamServer | None:
        """A server that was started, whether or not it is ready; None if there is none."""
        client = self.manager._engine.registry.client_of(name)
        known = self._servers.get(name)
        if known is not None and known.client is not client:
            for end in self._servers.pop(name).stop():
                stop_soon(end)
            known = None
        if known is None and client is not None:
            instances = InstancePool(
                self.manager, client, self._instance_happened, lambda: self.checks.shares.settings.instances_per_client
            )
            known = UpstreamServer(name, client, instances, self._listed)
            self._servers[name] = known
        return known

    def _instance_happened(self, instance: MCPClient, event: Event) -> None:
        """Pass on an event of an unshared process. Any thread may call this."""
        if isinstance(event, ResourceUpdated | ServerLog) and self._inbox is not None:
            self._inbox.post(lambda: self.on_event(event, instance))

    @property
    def version(self) -> int:
        """Rises with each change of the lists."""
        if self.manager._engine.registry.routes is not self._routes:
            self._routes = self.manager._engine.registry.routes
            self._version += 1
        return self._version

    def settled(self, server: UpstreamServer) -> bool:
        server.has_settled = server.has_settled or not self.is_starting(server)
        return server.has_settled

    def is_starting(self, server: UpstreamServer) -> bool:
        return server.client.state in _STARTING and self.manager.get_client(server.name) is not server.client

    def names(self) -> list[str]:
        return [status.name for status in self.manager.status()]

    def statuses(self) -> list[ServerStatus]:
        known = self._servers
        return [known[one.name].instances.status(one) if one.name in known else one for one in self.manager.status()]

    def tool_names(self) -> dict[str, list[str] | None]:
        """The own names of each server's tools; None if the server has not listed them yet."""
        catalogs = {server.name: server.client._engine.tool_calls.catalog for server in self.of(self.names())}
        return {name: [tool.name for tool in one.tools] if one.listed else None for name, one in catalogs.items()}

    def of(self, names: Iterable[str]) -> list[UpstreamServer]:
        return [known for name in names if (known := self.get(name)) is not None]

    def when(self, condition: Callable[[], bool], act: Callable[[], None], seconds: float) -> None:
        """Call `act` when `condition` is true, or after `seconds`. The condition is checked after each event."""
        if condition():
            act()
        else:
            key = object()
            timer = asyncio.get_running_loop().call_later(seconds, self._waited, key)
            self._waiting[key] = (condition, act, timer)

    def look(self) -> None:
        for key, (condition, _, _) in list(self._waiting.items()):
            if condition():
                self._waited(key)

    def _waited(self, key: object) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            _, act, timer = waiting
            timer.cancel()
            act()

    def _happened(self, event: Event) -> None:
        if isinstance(event, ServerLog | ResourceUpdated):
            # Thousands of these may come, and no list or condition depends on them.
            self.on_event(event, None)
            return
        if isinstance(event, StateChanged | ToolsChanged):
            self._version += 1
        server = self.get(event.server)
        if server is not None:
            server.happened(event)
        self.look()
        if isinstance(event, ToolsChanged):
            self.on_changed(event.server, "tools")

    def _listed(self, server: str, kind: Kind, was_known: bool) -> None:
        self._version += 1
        if was_known:
            self.on_changed(server, kind)
