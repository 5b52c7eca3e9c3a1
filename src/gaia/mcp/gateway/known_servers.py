"""The servers behind the gateway, and what is known of each, also while it restarts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from gaia.mcp.aio.loop_inbox import LoopInbox
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.supervision.events import Event, ServerState
from gaia.mcp.gateway.upstream import Upstream

__all__ = ["KnownServer", "KnownServers"]

_NOT_SETTLED = (ServerState.CREATED, ServerState.STARTING)


class KnownServer:
    """One server. Belongs to the gateway's event loop."""

    def __init__(self, name: str, client: MCPClient) -> None:
        self.name = name
        self.client = client
        self.upstream = Upstream(client)
        self._has_settled = False

    @property
    def has_settled(self) -> bool:
        """Whether its first start has succeeded or failed."""
        if not self._has_settled:
            self._has_settled = self.client.tool_calls.catalog.listed or self.client.state not in _NOT_SETTLED
        return self._has_settled

    @property
    def capabilities(self) -> dict[str, Any]:
        return self.client.capabilities


class KnownServers:
    """All servers of a manager, in its order. Belongs to the gateway's event loop."""

    def __init__(self, manager: MCPClientManager) -> None:
        self.manager = manager
        self.version = 0
        """Grows with each change of what there is to list."""
        self._servers: dict[str, KnownServer] = {}
        self._unsubscribe: Callable[[], None] = lambda: None
        self._waiting: list[Callable[[], bool]] = []
        """Each looks whether what it waits for is there, and says whether it is done."""

    def start(self, inbox: LoopInbox) -> None:
        """Follow the manager's events."""
        self._unsubscribe = self.manager.subscribe(lambda event: inbox.post(functools.partial(self._happened, event)))

    def stop(self) -> None:
        self._unsubscribe()

    def get(self, name: str) -> KnownServer | None:
        client = self.manager.client_of(name)
        if client is None:
            self._servers.pop(name, None)
            return None
        known = self._servers.get(name)
        if known is None or known.client is not client:
            known = self._servers[name] = KnownServer(name, client)
        return known

    def names(self) -> list[str]:
        """Of all that were started, in the order of the configuration."""
        return [status.name for status in self.manager.status()]

    def of(self, names: Iterable[str]) -> list[KnownServer]:
        return [known for name in names if (known := self.get(name)) is not None]

    def when(self, condition: Callable[[], bool]) -> None:
        """Look at `condition` after each event of a server, until it is true."""
        if not condition():
            self._waiting.append(condition)

    def _happened(self, _event: Event) -> None:
        self.version += 1
        waiting, self._waiting = self._waiting, []
        self._waiting += [condition for condition in waiting if not condition()]
