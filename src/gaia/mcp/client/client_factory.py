"""`ClientFactory`: makes the clients of a manager's servers and records the entry of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from gaia.mcp.client.client_options import ClientOptions, SharedServices
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.server_memory import ServerMemory, identity_of
from gaia.mcp.client.server_registry import ServerRegistry
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.client_features import RELAYED
from gaia.mcp.supervision.events import Event
from gaia.mcp.tools.pins import pins_in


class Origin:
    """The entry that a client was made from, with its file. Equal origins mean the same server. Immutable."""

    def __init__(self, name: str, entry: Mapping[str, Any], source: Path | None) -> None:
        """`source` is the file of the entry, None for memory. Raises ConfigError for an entry that cannot be used."""
        self.entry = entry
        self.server = ServerConfig.from_dict(name, entry)
        self.source = source
        # An entry without a restart policy uses the manager's, so its presence is part of the meaning.
        self._meaning = (self.server, "restart" in entry, source)
        self._identity = identity_of(self.server, source)
        self.memory = ServerMemory(None if source is None else self._identity)
        """Knowledge from earlier starts. It is kept on disk only for a server whose entry is in a file."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and self._meaning == other._meaning

    __hash__ = None  # type: ignore[assignment]  # an entry has lists in it

    def follow(self, earlier: Origin) -> None:
        """Take over the memory of `earlier`, which this origin replaces, unless the server's identity has changed."""
        if self._identity == earlier._identity and self.server.in_process is earlier.server.in_process:
            self.memory = earlier.memory


class ClientFactory:
    """Makes clients that share the services of one manager. Thread-safe, except `relay`."""

    def __init__(
        self,
        registry: ServerRegistry,
        services: SharedServices,
        defaults: ClientOptions,
        lock_file: Path | None,
        new_client: Callable[[str, Mapping[str, Any]], MCPClient],
        on_event: Callable[[str, MCPClient, Event], None],
    ) -> None:
        """``new_client(name, entry)`` makes a client without shared services, or raises ConfigError (a ValueError).

        ``on_event(name, client, event)`` is called on the thread on which the event happens.
        """
        self.new_client = new_client
        self.services = services
        self.defaults = defaults
        self._registry = registry
        self._lock_file = lock_file
        self._on_event = on_event
        self._origins: WeakKeyDictionary[MCPClient, Origin] = WeakKeyDictionary()
        """The origin of each client. Any thread sets and reads single entries."""

    def relay(self) -> None:
        """Let the clients of a gateway answer the servers' requests. Called before the first connection."""
        self.defaults = msgspec.structs.replace(self.defaults, features=RELAYED)

    def origin_of(self, client: MCPClient) -> Origin | None:
        return self._origins.get(client)

    def make(self, name: str, config: Mapping[str, Any], source: Path | None) -> MCPClient:
        """Make a client and reserve its name. Raises ValueError. For `source` see `Origin`."""
        client = self.new_client(name, config)
        origin = Origin(name, config, source)
        self._join(client, client, origin)
        self._origins[client] = origin
        self._registry.reserve(name, client)
        return client

    def _join(self, client: MCPClient, member: MCPClient, origin: Origin) -> None:
        name = member.name
        services = self._services_of(
            origin,
            memory=origin.memory,
            on_tools=lambda tools: self._registry.tools_listed(name, member, tools),
            on_event=lambda event: self._on_event(name, member, event),
        )
        client._engine.join(services, self.defaults)

    def _services_of(self, origin: Origin, **others: Any) -> SharedServices:
        return msgspec.structs.replace(
            self.services,
            source=origin.source,
            pins=lambda name: pins_in(origin.source, name, self._lock_file),
            **others,
        )

    def reconfigure(self, client: MCPClient, successor: MCPClient, origin: Origin) -> MCPError | None:
        """Continue `client` with the entry `origin` of `successor`; see `ClientEngine.reconfigure`."""
        earlier = self._origins.get(client)
        if earlier is not None:
            origin.follow(earlier)
        self._join(successor, client, origin)
        error = client._engine.reconfigure(successor._engine)
        if error is None or client.transport is successor.transport:
            # A server that was not ready has the new transport even after an error.
            self._origins[client] = origin
        return error

    # Instances.

    def new_instance(self, name: str, on_event: Callable[[Event], None] = lambda _: None) -> MCPClient:
        """A further client of a server of the manager, with its own process.

        It uses the present entry of the server, with the same filters and pins. It is lazy: connecting returns at once,
        and the first call starts its process. It does not belong to the manager: the caller connects and disconnects
        it, `list_tools` and `status` do not show it, and the manager's listeners do not receive its events. `on_event`
        receives them on the thread on which each happens, so it must return at once and must not raise. Raises
        ValueError if no server of this name was started.
        """
        shared = self._registry.client_of(name)
        origin = None if shared is None else self._origins.get(shared)
        if shared is None or origin is None:
            raise ValueError(f"server {name!r} is not running, so there can be no instance of it")
        return self._instance_of(shared, origin, on_event)

    def renew_instance(self, client: MCPClient, on_event: Callable[[Event], None] = lambda _: None) -> MCPError | None:
        """Continue an instance with the present entry of its server; see `MCPClientManager.apply`. May wait."""
        shared = self._registry.client_of(client.name)
        origin = None if shared is None else self._origins.get(shared)
        if shared is None or origin is None:
            return None
        one_process = msgspec.structs.replace(origin.server, replicas=1, stateless=False)
        if client._engine.entry == one_process:
            return None
        return client._engine.reconfigure(self._instance_of(shared, origin, on_event)._engine)

    def _instance_of(self, shared: MCPClient, origin: Origin, on_event: Callable[[Event], None]) -> MCPClient:
        # An instance is one process.
        entry = {key: value for key, value in origin.entry.items() if key not in ("replicas", "stateless")}
        client = self.new_client(shared.name, entry)
        tools = [tool.definition for tool in shared._engine.tool_calls.catalog.tools if tool.definition]
        memory = ServerMemory(last=(shared._engine.session.profile, tools))
        client._engine.join(
            self._services_of(origin, memory=memory, on_event=on_event),
            msgspec.structs.replace(self.defaults, lazy=True),
        )
        return client
