"""`ClientFactory`: makes the clients of a manager's servers, and knows what each of them was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from gaia.mcp.client.client_options import ClientOptions, SharedServices
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.server_memory import RememberedServer, ServerMemory, identity_of
from gaia.mcp.client.server_registry import ServerRegistry
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.client_features import RELAYED
from gaia.mcp.supervision.events import Event
from gaia.mcp.tools.pins import pins_in


class Origin:
    """What a client was made of. If it is equal, there is nothing to change. Immutable."""

    def __init__(self, name: str, entry: Mapping[str, Any], source: Path | None) -> None:
        """`source` is the file of the entry, None for one in memory: pins are of a server in one file.

        Raises ConfigError for an entry that cannot be used.
        """
        self.entry = entry
        self.server = ServerConfig.from_dict(name, entry)
        self.source = source
        # Without a restart policy of its own it has that of the manager.
        self._meaning = (self.server, "restart" in entry, source)
        self._identity = identity_of(self.server, source)
        self.memory = ServerMemory(None if source is None else self._identity)
        """What is known of the server from earlier starts; from those of earlier processes only if it is of a file."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and self._meaning == other._meaning

    __hash__ = None  # type: ignore[assignment]  # an entry has lists in it

    def follow(self, earlier: Origin) -> None:
        """It takes the place of `earlier`: what is known of the server is so still, unless it is another one now."""
        if self._identity == earlier._identity and self.server.in_process is earlier.server.in_process:
            self.memory = earlier.memory


class ClientFactory:
    """Makes clients that share what belongs to one manager. Thread-safe, but for `relay`."""

    def __init__(
        self,
        registry: ServerRegistry,
        services: SharedServices,
        defaults: ClientOptions,
        lock_file: Path | None,
        new_client: Callable[[str, Mapping[str, Any]], MCPClient],
        on_event: Callable[[str, MCPClient, Event], None],
    ) -> None:
        """``new_client(name, entry)`` gives one that shares nothing yet, or raises ConfigError (a ValueError).

        ``on_event(name, client, event)`` is called on the thread on which something happens to a server.
        """
        self.new_client = new_client
        self.services = services
        """What all clients share."""
        self.defaults = defaults
        """For what the entries of servers leave open."""
        self._registry = registry
        self._lock_file = lock_file
        self._on_event = on_event
        self._origins: WeakKeyDictionary[MCPClient, Origin] = WeakKeyDictionary()
        """What each client was made of. Single entries are set and read, by any thread."""

    def relay(self) -> None:
        """See `ManagerEngine.relay`."""
        self.defaults = msgspec.structs.replace(self.defaults, features=RELAYED)

    def origin_of(self, client: MCPClient) -> Origin | None:
        """What the client of a server was made of; None for one that was not made here."""
        return self._origins.get(client)

    def make(self, name: str, config: Mapping[str, Any], source: Path | None) -> MCPClient:
        """Make the client and reserve its name. Its entry is in the file `source`, or in memory. Raises ValueError."""
        client = self.new_client(name, config)
        origin = Origin(name, config, source)
        client._engine.join(self._services_for(name, client, origin), self.defaults)
        self._origins[client] = origin
        self._registry.reserve(name, client)
        return client

    def _services_for(self, name: str, client: MCPClient, origin: Origin) -> SharedServices:
        """What the client of a server shares with the others."""
        return msgspec.structs.replace(
            self.services,
            source=origin.source,
            pins=lambda name: pins_in(origin.source, name, self._lock_file),
            memory=origin.memory,
            on_tools=lambda tools: self._registry.tools_listed(name, client, tools),
            on_event=lambda event: self._on_event(name, client, event),
        )

    def reconfigure(self, name: str, client: MCPClient, successor: MCPClient, origin: Origin) -> MCPError | None:
        """Have `client` go on with what `successor` was made of, which is `origin`; see `ClientEngine.reconfigure`."""
        earlier = self._origins.get(client)
        if earlier is not None:
            origin.follow(earlier)
        successor._engine.join(self._services_for(name, client, origin), self.defaults)
        error = client._engine.reconfigure(successor._engine)
        if client.transport is successor.transport:
            # It is so after an error, too, if the server was not ready before.
            self._origins[client] = origin
        return error

    # Instances.

    def new_instance(self, shared: MCPClient, on_event: Callable[[Event], None]) -> MCPClient | None:
        """A lazy client of the server of `shared`, for code that needs a process of its own; None if it is not ours."""
        origin = self._origins.get(shared)
        if origin is None:
            return None
        client = self.new_client(shared.name, origin.entry)
        self._join_instance(client, shared, origin, on_event)
        return client

    def renew_instance(
        self, client: MCPClient, shared: MCPClient, on_event: Callable[[Event], None]
    ) -> MCPError | None:
        """Have an instance go on with the entry that its server has now. May wait."""
        origin = self._origins.get(shared)
        if origin is None or client._engine.entry == origin.server:
            return None
        successor = self.new_client(client.name, origin.entry)
        self._join_instance(successor, shared, origin, on_event)
        return client._engine.reconfigure(successor._engine)

    def _join_instance(
        self, client: MCPClient, shared: MCPClient, origin: Origin, on_event: Callable[[Event], None]
    ) -> None:
        tools = [tool.definition for tool in shared._engine.tool_calls.catalog.tools if tool.definition]
        services = msgspec.structs.replace(
            self.services,
            source=origin.source,
            pins=lambda name: pins_in(origin.source, name, self._lock_file),
            on_event=on_event,
            memory=ServerMemory(last=RememberedServer(shared._engine.session.profile, tools)),
        )
        client._engine.join(services, msgspec.structs.replace(self.defaults, lazy=True))
