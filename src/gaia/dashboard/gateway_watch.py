"""`GatewayWatch`: asks a gateway that runs elsewhere how it is, for a page about it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.dashboard.servers import remote_statuses
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.gateway.operations.status import GatewayStatus
from gaia.runtime.locks import Latch, reentrant_lock

_SECONDS = 1.0
"""Between two questions."""

OnState = Callable[[str, str | None, str, int, str | None], None]
"""Told a server, its old and its new state, its generation and the reason."""


class GatewayWatch:
    """Asks on a thread of its own, and keeps the servers of a manager equal to those of the gateway."""

    def __init__(
        self,
        fetch: Callable[[], GatewayStatus],
        entry: Callable[[str], Mapping[str, Any]],
        manager: MCPClientManager,
        first: GatewayStatus,
    ) -> None:
        """`fetch` asks the gateway, and raises an exception that says why it cannot; `first` is its first answer.

        `entry` is the configuration under which `manager` reaches a server of the gateway, by its name there.
        """
        self._fetch = fetch
        self._entry = entry
        self._manager = manager
        self._lock = reentrant_lock()
        """Owns both below."""
        self._status = first
        self._problem: str | None = None
        self._stop = Latch()
        self._thread: threading.Thread | None = None

    def start(self, on_state: OnState) -> Callable[[], None]:
        """Begin to ask. `on_state` is called on the thread. Returns a function that stops this."""
        for server in self._status.servers:
            on_state(server.name, None, server.state.value, server.generation, None)
        thread = self._thread = threading.Thread(target=self._run, args=(on_state,), name="gaia-gateway", daemon=True)
        thread.start()

        def stop() -> None:
            self._stop.open()
            thread.join()

        return stop

    def rows(self) -> list[dict[str, Any]]:
        """A row for each server, as of a manager's servers."""
        with self._lock:
            return remote_statuses(self._status.servers)

    def document(self) -> dict[str, Any]:
        """What the page shows of the gateway itself. ``problem`` says why it cannot be asked now."""
        with self._lock:
            status, problem = self._status, self._problem
        found: dict[str, Any] = msgspec.to_builtins(status)
        del found["servers"]
        # The page's clock goes on by itself.
        found["started"] = round(time.time() - found.pop("uptime"))
        for session in found["sessions"]:
            session["idle"] = round(session["idle"])
        return {**found, "problem": problem}

    def _run(self, on_state: OnState) -> None:
        while not self._stop.wait(_SECONDS):
            try:
                self._look(on_state)
            except Exception as error:  # noqa: BLE001 - whatever it is, the page says it, and it may pass
                with self._lock:
                    self._problem = str(error)

    def _look(self, on_state: OnState) -> None:
        status = self._fetch()
        with self._lock:
            before, self._status, self._problem = self._status, status, None
        self._compare(before, status, on_state)

    def _compare(self, before: GatewayStatus, now: GatewayStatus, on_state: OnState) -> None:
        known = {server.name: server.state.value for server in before.servers}
        for server in now.servers:
            old = known.pop(server.name, None)
            if old != server.state.value:
                on_state(server.name, old, server.state.value, server.generation, server.last_error)
        if known or len(now.servers) != len(before.servers):
            self._manager.apply({server.name: self._entry(server.name) for server in now.servers}, timeout=0)
