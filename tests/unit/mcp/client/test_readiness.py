"""What keeps a server from being ready, and waiting for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.ping import PingMonitor
from gaia.mcp.client.readiness import Absence, Readiness, absence_of
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from tests.waiting import PATIENCE, wait_until


def absent(state: ServerState, *, joined: bool = True, **fields: Any) -> Absence | None:
    status = ServerStatus(name="time", state=state, **fields)
    return absence_of("time", status, MCPConfig.in_memory({"time": {"command": "x"}}), joined=joined)


class TestAbsence:
    @pytest.mark.parametrize("state", [ServerState.READY, ServerState.EXITED])
    def test_a_server_that_answers_calls_is_ready(self, state: ServerState) -> None:
        assert absent(state) is None

    def test_one_that_has_not_joined_is_not_yet(self) -> None:
        absence = absent(ServerState.READY, joined=False)
        assert absence is not None
        assert not absence.is_final

    @pytest.mark.parametrize(
        ("state", "fields"),
        [
            (ServerState.CREATED, {}),
            (ServerState.STARTING, {}),
            (ServerState.RESTARTING, {}),
            (ServerState.AUTHORIZING, {}),
            (ServerState.FAILED, {"retry_in": 5.0}),
        ],
    )
    def test_what_may_still_come_is_not_final(self, state: ServerState, fields: dict[str, Any]) -> None:
        absence = absent(state, **fields)
        assert absence is not None
        assert not absence.is_final

    @pytest.mark.parametrize(
        "state", [ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION, ServerState.CLOSED], ids=lambda one: one.value
    )
    def test_what_needs_help_is(self, state: ServerState) -> None:
        absence = absent(state, last_error="no such program")
        assert absence is not None
        assert absence.is_final
        assert absence.error.message == "server 'time' is unavailable: no such program"

    def test_the_cause_and_the_next_attempt_are_named(self) -> None:
        absence = absent(ServerState.FAILED, last_error="refused", retry_in=4.2)
        assert absence is not None
        assert absence.error.message == "server 'time' is unavailable: refused; the next attempt is in 5 s"
        assert absence.error.retry_in == 4.2

    @pytest.mark.parametrize(
        ("entries", "reason"),
        [
            ({}, "there is no server of this name"),
            ({"time": {"command": "x", "disabled": True}}, "it is disabled"),
            ({"time": {"command": "x"}}, r"call load_from_config\(\)"),
        ],
    )
    def test_a_server_that_was_not_started_is_told_from_one_that_is_unknown(
        self, entries: dict[str, Any], reason: str
    ) -> None:
        absence = absence_of("time", None, MCPConfig.in_memory(entries), joined=False)
        assert absence is not None
        assert absence.is_final
        with pytest.raises(RuntimeError, match=reason):
            raise absence.error


class TestReadiness:
    def test_what_is_over_is_not_waited_for(self) -> None:
        assert Readiness().wait(lambda: True, None)

    @pytest.mark.parametrize("timeout", [0, 0.01])
    def test_the_wait_ends_with_its_time(self, timeout: float) -> None:
        assert not Readiness().wait(lambda: False, timeout)

    def test_each_change_is_looked_at_by_all_that_wait(self) -> None:
        readiness, looked, over = Readiness(), threading.Semaphore(0), threading.Event()

        def is_over() -> bool:
            looked.release()
            return over.is_set()

        with ThreadPoolExecutor(3) as pool:
            waits = [pool.submit(readiness.wait, is_over, PATIENCE) for _ in range(3)]
            for _ in range(3):
                assert looked.acquire(timeout=PATIENCE)
            readiness.changed()
            for _ in range(3):
                assert looked.acquire(timeout=PATIENCE)
            over.set()
            readiness.changed()
            assert all(wait.result(PATIENCE) for wait in waits)


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
