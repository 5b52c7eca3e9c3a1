"""`PingMonitor`: measures repeatedly how quickly servers answer."""

from __future__ import annotations

import threading
import time
from collections import deque

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.clock import require_seconds

_KEPT = 40
_PATIENCE = 5.0


def ping(client: MCPClient, timeout: float | None = None) -> None:
    """Send a ping; any answer counts. Raises `MCPError` if the server does not answer within `timeout` seconds."""
    handshake = client.protocol_version in HANDSHAKE_REVISIONS
    try:
        # The stateless era has no ping.
        client.request("ping" if handshake else "server/discover", None if handshake else {}, timeout=timeout)
    except JsonRpcError:
        return


class PingMonitor:
    """Measures the ready servers of a manager while it is entered, each on its own thread.

    It asks only servers that are ready: a request would start a server that has exited by itself.
    """

    def __init__(self, manager: MCPClientManager, interval: float = 1.0) -> None:
        """`interval` is in seconds, from one answer to the next request."""
        self._manager = manager
        self._interval = interval
        self._stopping = threading.Event()
        self._scope = CancelScope()
        self._changed = threading.Condition()
        self._readings: dict[str, deque[float | None]] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> PingMonitor:
        for name in [status.name for status in self._manager.status()]:
            thread = threading.Thread(target=self._measure, args=(name,), name=f"mcp-{name}-ping", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._scope.cancel()
        for thread in self._threads:
            thread.join()

    def of(self, name: str) -> list[float | None]:
        """The last round trips of a server in seconds, oldest first; None for a request without an answer."""
        with self._changed:
            return list(self._readings.get(name, ()))

    def wait(self, names: list[str], timeout: float) -> bool:
        """Wait until each of these servers was pinged once; False after `timeout` seconds."""
        require_seconds("timeout", timeout)
        with self._changed:
            return self._changed.wait_for(lambda: all(name in self._readings for name in names), timeout)

    def _measure(self, name: str) -> None:
        with self._scope.entered():
            while not self._stopping.is_set():
                client = self._manager.get_client(name)
                if client is not None and client.is_connected():
                    self._ask(name, client)
                self._stopping.wait(self._interval)

    def _ask(self, name: str, client: MCPClient) -> None:
        began = time.perf_counter()
        taken: float | None = None
        try:
            ping(client, _PATIENCE)
            taken = time.perf_counter() - began
        except (MCPError, RuntimeError):
            # The server crashed, hangs, or was disconnected meanwhile; its status says which.
            if self._stopping.is_set():
                return
        with self._changed:
            self._readings.setdefault(name, deque(maxlen=_KEPT)).append(taken)
            self._changed.notify_all()
