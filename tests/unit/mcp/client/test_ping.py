"""How quickly servers answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.ping import PingMonitor
from gaia.mcp.supervision.events import ServerState
from tests.waiting import wait_until

FaultServer = Callable[..., dict[str, Any]]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[MCPClientManager]:
    with MCPClientManager(MCPConfig(tmp_path / "servers.json", create=True)) as connected:
        yield connected


def test_every_ready_server_is_measured_again_and_again(manager: MCPClientManager, demo_server: dict[str, Any]) -> None:
    manager.add_server("a", demo_server)
    manager.add_server("b", demo_server)
    with PingMonitor(manager, interval=0.01) as monitor:
        assert monitor.wait(["a", "b"], 10)
        assert wait_until(lambda: len(monitor.of("a")) >= 3)

    assert all(taken is not None and 0 < taken < 5 for taken in monitor.of("a") + monitor.of("b"))
    assert monitor.of("nobody") == []


def test_an_error_is_an_answer(manager: MCPClientManager, fault_server: FaultServer) -> None:
    error = {"code": -32601, "message": "unknown"}
    manager.add_server("it", fault_server(faults=[{"on": "ping", "error": error}]))
    with PingMonitor(manager) as monitor:
        assert monitor.wait(["it"], 10)

    assert monitor.of("it")[0] is not None


def test_a_question_without_an_answer_is_given_up_at_the_end(
    manager: MCPClientManager, fault_server: FaultServer, demo_server: dict[str, Any]
) -> None:
    manager.add_server("stuck", fault_server(faults=[{"on": "ping", "hang": True}]))
    manager.add_server("fine", demo_server)
    with PingMonitor(manager) as monitor:
        assert monitor.wait(["fine"], 10)
        assert not monitor.wait(["stuck"], 0.1)

    assert monitor.of("stuck") == []


def test_a_server_that_left_by_itself_is_left_alone(manager: MCPClientManager, fault_server: FaultServer) -> None:
    client = manager.add_server("it", fault_server(faults=[{"tool": "pid", "crash": "after_answer", "exit_code": 0}]))
    client.call_tool("pid")
    assert wait_until(lambda: client.state is ServerState.EXITED)
    with PingMonitor(manager, interval=0.01) as monitor:
        assert not monitor.wait(["it"], 0.1)

    assert client.status.generation == 1
