"""Deadlines while a supervisor waits: for the process that starts servers, or for the file of approved tools."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp import MCPClient
from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.errors import CallTimeout
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.transports import reaped_process
from gaia.mcp.transports.fork_server import fork_server
from tests.waiting import PATIENCE, wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the fork server is for Linux only"),
]

SECONDS = 0.05


@pytest.fixture
def client(fault_server: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[MCPClient]:
    """Of a server that was killed and is being started by a process that stands still."""
    monkeypatch.setattr(reaped_process, "_START_SECONDS", PATIENCE)
    client = MCPClient.from_config("fault", {**fault_server(), "timeout": 1})
    assert client.connect()
    starter, server = fork_server.pid, client.status.pid
    assert starter is not None
    assert server is not None
    os.kill(starter, signal.SIGSTOP)
    try:
        os.kill(server, signal.SIGKILL)
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        yield client
        # All of it while the supervisor was waiting.
        assert client.state is ServerState.RESTARTING
    finally:
        os.kill(starter, signal.SIGCONT)
        client.disconnect()


ASK: dict[str, Callable[[MCPClient], object]] = {
    "call": lambda client: client.request("tools/call", {"name": "echo"}, timeout=SECONDS),
    "submitted call": lambda client: client.submit_tool("echo", {}, timeout=SECONDS).result(PATIENCE),
    "awaited call": lambda client: asyncio.run(
        AsyncMCPClient.over(client).request("tools/call", {"name": "echo"}, timeout=SECONDS)
    ),
    "resource": lambda client: client.read_resource("file:///x"),
    "awaited resource": lambda client: asyncio.run(AsyncMCPClient.over(client).read_resource("file:///x")),
    "prompt": lambda client: client.get_prompt("greet"),
    "completion": lambda client: client.complete(
        {"type": "ref/prompt", "name": "greet"}, {"name": "name", "value": "x"}
    ),
    "resources": lambda client: client.list_resources(),
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_each_request_ends_at_its_deadline(client: MCPClient, ask: Callable[[MCPClient], object]) -> None:
    with pytest.raises(CallTimeout) as caught:
        ask(client)
    assert caught.value.delivery == "not_sent"


def test_so_does_a_list_of_the_tools(client: MCPClient) -> None:
    assert client.list_tools(refresh=True) == []


def test_a_call_is_cancelled_at_once(client: MCPClient) -> None:
    future = client.submit_tool("echo", {})
    assert future.cancel()
    assert client.status.queued == 0
