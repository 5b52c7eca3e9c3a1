"""The servers behind the gateway, and what is known of each, also while it restarts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal

from gaia.mcp.aio.calls import run
from gaia.mcp.aio.threads import stop_soon
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.errors import MCPError
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.instances.instances import InstancePool
from gaia.mcp.gateway.instances.owners import Handle, InstanceOwners, OwnedRequest, identity_of
from gaia.mcp.gateway.messages import LOG_LEVELS, severity
from gaia.mcp.gateway.upstream.rounds import Rounds
from gaia.mcp.gateway.upstream.sealing import StateSeal
from gaia.mcp.gateway.upstream.upstream import Upstream
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
"""Whose lists can change."""

_STARTING = (ServerState.CREATED, ServerState.STARTING, ServerState.READY)
"""The states of a server that has not joined the others and may do so any moment."""


class UpstreamServer:
    """One server. Belongs to the gateway's event loop."""

    def __init__(
        self,
        name: str,
        client: MCPClient,
        upstream_of: Callable[[MCPClient], Upstream],
        on_listed: Callable[[str, Kind, bool], None],
        instances: InstancePool,
        owners: InstanceOwners,
    ) -> None:
        """``on_listed(name, kind, was_known)`` is called after a list has become another one.

        What is listed comes from the shared process, whichever process answers the requests of sessions.
        """
        self.name = name
        self.client = client
        self.upstream = upstream_of(client)
        """The shared process."""
        self.instances = instances
        """The processes that are not shared."""
        self._owners = owners
        features = client._engine.features

        def known(capability: Kind, key: str, listing: Callable[[], Any]) -> CachedList:
            return CachedList(client, capability, key, listing, functools.partial(on_listed, name, capability))

        self.prompts = known("prompts", "name", features.list_prompts)
        self.resources = known("resources", "uri", features.list_resources)
        self.templates = known("resources", "uriTemplate", features.list_resource_templates)
        self.has_settled = False
        """Whether its first start has succeeded or failed, or took too long; see `UpstreamServers.settled`."""
        self._log_level: int | None = None
        """The least severe that any client wanted, as its severity."""
        self._tasks: set[asyncio.Task[None]] = set()
        """asyncio itself keeps tasks only weakly."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it has declared; empty before its first handshake."""
        return self.client.capabilities

    @property
    def speaks_stateless(self) -> bool:
        """Whether it is of the stateless era, as far as is known."""
        return self.client._engine.trips.is_stateless

    @property
    def logs_by_request(self) -> bool:
        """Whether it logs what each request asks for, to the client of that request."""
        return self.speaks_stateless

    def owner_of(self, request: OwnedRequest) -> tuple[Hashable, Handle | None]:
        """Whose process a request goes to, and the handle to tell its client of, if that is new.

        The shared process has no owner (None). Raises RequestRefused for a handle that is not valid.
        """
        entry = self.client._engine.entry
        if entry is None or entry.instances == "shared":
            return None, None
        return self._owners.owner_of(request, entry.instances)

    def is_process_of(self, process: MCPClient, session: object, identity: str) -> bool:
        """Whether requests in this session of the client `identity` go to `process`, which is not shared."""
        entry, owner = self.client._engine.entry, self.instances.owner_of(process)
        return (
            entry is not None
            and owner is not None
            and owner == self._owners.owner_of_session(session, identity, entry.instances)
        )

    def upstream_of(self, owner: Hashable) -> Upstream:
        """The process of an owner. Raises Overloaded if there are too many."""
        return self.upstream if owner is None else self.instances.upstream(owner)

    def want_log_level(self, level: str) -> None:
        """Have the server send log messages of this severity and above, unless it sends less severe ones already."""
        if level not in LOG_LEVELS or self.logs_by_request or "logging" not in self.capabilities:
            return
        if self._log_level is None or severity(level) < self._log_level:
            self._log_level = severity(level)
            for client in (self.client, *self.instances.clients()):
                # Processes that are started later are told, too.
                client._engine.subscriptions.set_log_level(level)
                if client.is_connected():
                    task = asyncio.get_running_loop().create_task(self._set_log_level(client, level))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _set_log_level(self, client: MCPClient, level: str) -> None:
        try:
            await run(client._engine.trips, client._engine.features.set_logging_level(level))
        except MCPError as error:
            logger.warning("gateway_log_level_refused", server=self.name, error=error.message)

    def happened(self, event: Event) -> None:
        """Fetch anew what is not true any more."""
        is_new = isinstance(event, StateChanged) and event.new is ServerState.READY
        if is_new or isinstance(event, PromptsChanged):
            self.prompts.outdated(is_announced=not is_new)
        if is_new or isinstance(event, ResourcesChanged):
            self.resources.outdated(is_announced=not is_new)
            self.templates.outdated(is_announced=not is_new)

    def stop(self) -> list[Callable[[], None]]:
        """Forget everything. Begins to end its instances; the functions returned wait for their ends."""
        for one in (self.prompts, self.resources, self.templates):
            one.stop()
        for task in self._tasks:
            task.cancel()
        return self.instances.close()


class UpstreamServers:
    """All servers of a manager, in its order. Belongs to the gateway's event loop."""

    def __init__(self, manager: MCPClientManager, seal: StateSeal | None = None) -> None:
        """`seal` is for what clients keep between two rounds; None: one that no other gateway has."""
        self.manager = manager
        self._rounds = Rounds(seal)
        self.checks = Checks()
        """What calls pass on their way to servers."""
        self._version = 0
        self._routes: object = None
        """The routes of the manager that the version is of; they are replaced as a whole."""
        self.on_event: Callable[[Event], None] = lambda _: None
        """Told of everything that happens to a server, after the lists know it."""
        self.on_instance: Callable[[MCPClient, ResourceUpdated | ServerLog], None] = lambda *_: None
        """Told of resources that have changed in a process that is not shared, and of what it logs."""
        self.on_changed: Callable[[str, Kind], None] = lambda *_: None
        """Told the server's name and the kind of list that has become another one."""
        self._servers: dict[str, UpstreamServer] = {}
        self._owners = InstanceOwners(time.monotonic, self.release, self._unknown_handle, self._most_handles)
        self._inbox: LoopWork | None = None
        """Of the loop, from the start on."""
        self._following = contextlib.ExitStack()
        self._waiting: dict[_Waiter, None] = {}

    def start(self, inbox: LoopWork) -> None:
        """Follow the manager's events."""
        self._inbox = inbox
        with contextlib.ExitStack() as following:
            following.callback(
                self.manager.subscribe(lambda event: inbox.post(functools.partial(self._happened, event)))
            )
            following.enter_context(self.manager._engine.readiness.watched(lambda: inbox.post(self.look)))
            self._following = following.pop_all()

    def end_instances(self) -> list[Callable[[], None]]:
        """Begin to end all processes of sessions and clients; the functions returned wait for the ends."""
        return [end for server in self._servers.values() for end in server.instances.close(at_once=True)]

    def stop(self) -> None:
        """Forget everything; what waits goes on. `end_instances` was called."""
        self._following.close()
        self._rounds.close()
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
        for waiter in list(self._waiting):
            waiter.expire()

    def release(self, owner: Hashable) -> None:
        """A session has ended, or a handle: so have its instances."""
        for server in self._servers.values():
            server.instances.release(owner)

    def _most_instances(self) -> int | None:
        return self.checks.shares.settings.instances_per_client

    def _most_handles(self) -> int:
        return self.checks.shares.settings.handles_per_client

    def _unknown_handle(self, request: OwnedRequest, error: str) -> None:
        client = request.identity or None
        self.checks.refusals.note("unknown_handle", error, request.method, request.address, client)

    def end_unused(self) -> None:
        """End the instances whose handles were not used for long."""
        self._owners.expire()

    def get(self, name: str) -> UpstreamServer | None:
        """A server that was started, whether it is ready or not."""
        client = self.manager._engine.client_of(name)
        known = self._servers.get(name)
        if known is not None and known.client is not client:
            for end in self._servers.pop(name).stop():
                stop_soon(end)
            known = None
        if known is None and client is not None:
            instances = InstancePool(
                self.manager, client, self._upstream_of, self._instance_happened, identity_of, self._most_instances
            )
            known = UpstreamServer(name, client, self._upstream_of, self._listed, instances, self._owners)
            self._servers[name] = known
        return known

    def _instance_happened(self, instance: MCPClient, event: Event) -> None:
        """Something has happened to a process that is not shared. For any thread."""
        if isinstance(event, ResourceUpdated | ServerLog) and self._inbox is not None:
            self._inbox.post(lambda: self.on_instance(instance, event))

    def _upstream_of(self, client: MCPClient) -> Upstream:
        return Upstream(client, self._rounds)

    @property
    def version(self) -> int:
        """Grows with each change of what there is to list."""
        if self.manager._engine.routes is not self._routes:
            self._routes = self.manager._engine.routes
            self._version += 1
        return self._version

    def settled(self, server: UpstreamServer) -> bool:
        """Whether the first start of a server has succeeded or failed."""
        if not server.has_settled:
            joined = self.manager.get_client(server.name) is server.client
            server.has_settled = joined or server.client.state not in _STARTING
        return server.has_settled

    def names(self) -> list[str]:
        """Of all that were started, in the order of the configuration."""
        return [status.name for status in self.manager.status()]

    def statuses(self) -> list[ServerStatus]:
        """Those of the manager, with the figures of processes that are not shared."""
        known = self._servers
        return [known[one.name].instances.status(one) if one.name in known else one for one in self.manager.status()]

    def tool_names(self) -> dict[str, list[str] | None]:
        """The own names of each server's tools; None if it has not listed them yet."""
        catalogs = {server.name: server.client._engine.tool_calls.catalog for server in self.of(self.names())}
        return {name: [tool.name for tool in one.tools] if one.listed else None for name, one in catalogs.items()}

    def of(self, names: Iterable[str]) -> list[UpstreamServer]:
        return [known for name in names if (known := self.get(name)) is not None]

    def when(self, condition: Callable[[], bool], act: Callable[[], None], seconds: float) -> None:
        """Call `act` once `condition`, which is looked at after each event, is true, or after so many seconds."""
        if condition():
            act()
        else:
            self._waiting[_Waiter(condition, act, seconds, self._waiting)] = None

    def look(self) -> None:
        """Look at all conditions that are waited for."""
        for waiter in list(self._waiting):
            waiter.look()

    def _happened(self, event: Event) -> None:
        if isinstance(event, ServerLog | ResourceUpdated):
            # Of these there may be thousands, and no list or condition depends on them.
            self.on_event(event)
            return
        if isinstance(event, StateChanged | ToolsChanged):
            self._version += 1
        server = self.get(event.server)
        if server is not None:
            server.happened(event)
        self.look()
        self.on_event(event)
        if isinstance(event, ToolsChanged):
            self.on_changed(event.server, "tools")

    def _listed(self, server: str, kind: Kind, was_known: bool) -> None:
        self._version += 1
        if was_known:
            self.on_changed(server, kind)


class _Waiter:
    def __init__(
        self,
        condition: Callable[[], bool],
        act: Callable[[], None],
        seconds: float,
        others: dict[_Waiter, None],
    ) -> None:
        self._condition = condition
        self._act = act
        self._others = others
        self._timer = asyncio.get_running_loop().call_later(seconds, self.expire)

    def look(self) -> None:
        if self._condition():
            self.expire()

    def expire(self) -> None:
        if self._others.pop(self, self) is None:
            self._timer.cancel()
            self._act()
