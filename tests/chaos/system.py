"""A manager with its servers and callers, everything that can happen to them, and what must hold afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from gaia.mcp import MCPClientManager
from gaia.mcp.client import MCPClient
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.supervision.policy import RestartPolicy
from tests import leak_check
from tests.chaos.faults import ScriptedServer
from tests.chaos.ledger import Ledger
from tests.servers.processes import is_alive
from tests.waiting import PATIENCE, wait_until

HASTY = RestartPolicy(initial_delay=0.05, max_delay=0.3, max_restarts=6, window=3.0, cooldown=0.3, stable_after=0.5)
"""Everything that restarts lead to, within seconds."""

MARGIN = 10.0
"""Seconds that a busy machine may take to end a call whose deadline is over."""


START_SECONDS = 6.0
"""Seconds in which servers start on a busy machine; those that never do are waited for as long."""


class System:
    """Real processes throughout. Its methods may be called in any order, all from one thread."""

    def __init__(
        self, folder: Path, eras: Mapping[str, str], *, health_timeout: float = 0.3, max_pending: int = 12
    ) -> None:
        """Start a server of the given era for each name; `folder` is for their files."""
        self._before = leak_check.Holdings.now()
        self._threads = ThreadPoolExecutor(16, "caller")
        config = MCPConfig(folder / "servers.json", create=True)
        self._manager = MCPClientManager(config, restart_policy=HASTY)
        self.servers = {name: ScriptedServer(name, folder, era) for name, era in eras.items()}
        self.ledgers = {name: Ledger(name) for name in eras}
        self._busy: list[Future[Any]] = []
        """Threads that wait for something."""
        self._submitted: list[Future[Any]] = []
        health = {"healthInterval": 0.3, "healthTimeout": health_timeout}
        for name, server in self.servers.items():
            limits = {"maxPending": max_pending, "timeout": 3, "startTimeout": START_SECONDS}
            config.add_server(name, server.configuration(**limits, **health))
        self._manager.load_from_config()
        self.clients = {name: self._client(name) for name in eras}

    def _client(self, name: str) -> MCPClient:
        client = self._manager.get_client(name)
        assert client is not None, self._manager.status()
        return client

    # What callers do.

    def call(self, name: str, tool: str, *, safe: bool, blocking: bool, timeout: float, ballast: int = 0) -> None:
        """Begin a call, in a thread that waits for it or without one. `ballast` makes it longer, by so many bytes."""
        client, ledger = self.clients[name], self.ledgers[name]
        arguments = {"ballast": "x" * ballast} if ballast else {}
        if blocking:
            self._in_background(ledger.call, client, tool, arguments, safe=safe, timeout=timeout)
            return
        future = ledger.submit(client, tool, arguments, safe=safe, timeout=timeout)
        if future is not None:
            self._submitted.append(future)

    def cancel(self, number: int) -> None:
        """Cancel one of the calls that no thread waits for, if there is any; it may be over."""
        if self._submitted:
            self._submitted[number % len(self._submitted)].cancel()

    def list_tools(self, name: str) -> None:
        self._in_background(self.clients[name].list_tools, refresh=True)

    # What happens to servers.

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the server, if it runs."""
        pid = self.clients[name].status.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    # What the owner does.

    def reconnect(self, name: str) -> None:
        client = self.clients[name]

        def reconnect() -> None:
            client.disconnect()
            client.connect()

        self._in_background(reconnect)

    # What time does.

    def wait_for_a_thread(self) -> None:
        if self._busy:
            self._busy.pop(0).result(PATIENCE)

    def wait_for_generation(self, name: str, number: int, seconds: float) -> bool:
        return wait_until(lambda: self.clients[name].status.generation >= number, seconds)

    def recover(self) -> None:
        """Nothing happens any more: all threads come back, and all servers."""
        for server in self.servers.values():
            server.from_now_on("well")
        while self._busy:
            self.wait_for_a_thread()
        for name in self.servers:
            assert wait_until(lambda name=name: self._answers(name), PATIENCE), self.clients[name].status  # type: ignore[misc]

    def end(self) -> None:
        """End everything, and look at what became of the calls and of the processes."""
        try:
            self.recover()
        finally:
            self._manager.disconnect_all()
            self._threads.shutdown()
        for name, server in self.servers.items():
            ledger, state = self.ledgers[name], server.state
            # Futures are completed on a thread of their own.
            assert wait_until(lambda ledger=ledger: not ledger.unfinished()), ledger.unfinished()  # type: ignore[misc]
            ledger.check(state.calls, MARGIN)
            assert not [pid for pid in (*state.pids, *state.children) if is_alive(pid)]
        leaked = leak_check.leaked_since(self._before)
        assert not leaked, leaked.describe()

    def _answers(self, name: str) -> bool:
        client, ledger = self.clients[name], self.ledgers[name]
        return client.connect() and ledger.call(client, "well", {}, safe=False, timeout=1.0).outcome == "ok"

    def _in_background(self, function: Any, *args: Any, **kwargs: Any) -> None:
        self._busy.append(self._threads.submit(function, *args, **kwargs))
