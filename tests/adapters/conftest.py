"""A server for agents of any framework: it counts in a file what it was asked, and can be killed in a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gaia
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer
from tests.servers import ledger_server
from tests.waiting import PATIENCE, wait_until

# Before CrewAI is imported: it would report its use over the network.
os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", CREWAI_TESTING="true")

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ledger:
    """What the ledger server was asked, over all its processes."""

    path: Path

    @property
    def lines(self) -> list[str]:
        """The texts of the calls, in the order of their arrival."""
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []

    def wait_for(self, text: str) -> None:
        """Wait until a call with this text has arrived."""
        assert wait_until(lambda: text in self.lines), f"no call with {text!r} has arrived"

    async def cancelled_with(self, text: str, run: Awaitable[object]) -> None:
        """Run this until a call with this text has arrived, and cancel it."""
        running = asyncio.ensure_future(run)
        await asyncio.to_thread(self.wait_for, text)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, PATIENCE)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def ledger_command(starts_processes: None, ledger: Ledger) -> dict[str, Any]:
    """The entry of the ledger server: ``command``, ``args`` and ``env``."""
    path = os.pathsep.join([str(Path(gaia.__file__).parents[1]), str(ROOT)])
    arguments = ["-P", str(ledger_server.__file__), str(ledger.path)]
    return {"command": sys.executable, "args": arguments, "env": {"PYTHONPATH": path}}


@pytest.fixture
def manager(ledger_command: dict[str, Any]) -> Iterator[MCPClientManager]:
    """A manager whose server ``ledger`` is ready."""
    with MCPClientManager({"ledger": ledger_command}) as manager:
        manager.require("ledger")
        yield manager


def assert_idle(manager: MCPClientManager) -> None:
    """No call is left, and the server was not restarted."""
    (status,) = manager.status()
    assert (status.in_flight, status.restarts) == (0, 0)


@dataclass(frozen=True)
class Killer:
    """Kills the process of the server ``ledger`` that runs now with SIGKILL, as ``kill -9`` does."""

    manager: MCPClientManager
    ledger: Ledger

    def kill(self) -> None:
        """Kill it, and wait until the manager has noticed: a call that is made from now on is for the next process."""
        client = self.manager.get_client("ledger")
        assert client is not None
        pid = client.status.pid
        assert pid is not None, "no process runs"
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: client.status.pid != pid), "the manager has not noticed that the server ended"

    @contextlib.contextmanager
    def during(self, *texts: str, end: Callable[[], object] | None = None) -> Iterator[None]:
        """Kill it, or `end` it otherwise, in a thread, once calls with these texts have arrived."""

        def kill() -> None:
            for text in texts:
                self.ledger.wait_for(text)
            (end or self.kill)()

        with ThreadPoolExecutor(1) as executor:
            killed = executor.submit(kill)
            yield
            killed.result(PATIENCE)


@pytest.fixture
def killer(manager: MCPClientManager, ledger: Ledger) -> Killer:
    return Killer(manager, ledger)


@pytest.fixture
def until_grown(manager: MCPClientManager) -> Callable[[], None]:
    """Waits until the tool that ``grow`` adds is listed."""

    def wait() -> None:
        assert wait_until(lambda: "mcp_ledger_grown_1" in [tool.namespaced_name for tool in manager.list_tools()])

    return wait


@pytest.fixture
def demo_of() -> Callable[..., contextlib.AbstractContextManager[MCPClientManager]]:
    """Makes a manager with a server that has these instructions."""

    @contextlib.contextmanager
    def managed(instructions: str) -> Iterator[MCPClientManager]:
        server = FakeServer("notes", tools=[{"name": "delete"}], instructions=instructions)
        with MCPClientManager({"notes": server}) as manager:
            manager.require("notes")
            yield manager

    return managed
