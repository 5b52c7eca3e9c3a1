"""A gateway that runs elsewhere, as a page about it shows it."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gaia.dashboard.gateway_watch import GatewayWatch
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.gateway.operations.status import GatewayStatus
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.testing import FakeServer
from tests.unit.mcp.gateway.operations.test_status import STATUS
from tests.waiting import PATIENCE, wait_until


def status_of(**states: ServerState) -> GatewayStatus:
    servers = [ServerStatus(name=name, state=state, uptime=2.0) for name, state in states.items()]
    return msgspec.structs.replace(STATUS, servers=servers)


class Watched:
    """A watch whose gateway answers what a test puts into `answers`, again and again."""

    def __init__(self, manager: MCPClientManager, first: GatewayStatus) -> None:
        self.answer: GatewayStatus | Exception = first
        self.states: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.watch = GatewayWatch(self._fetch, FakeServer, manager, first)

    def _fetch(self) -> GatewayStatus:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def manager() -> Iterator[MCPClientManager]:
    with MCPClientManager({}) as manager:
        yield manager


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.dashboard.gateway_watch._SECONDS", 0.001)


def test_rows_and_the_document_are_those_of_the_status(manager: MCPClientManager) -> None:
    watch = Watched(manager, status_of(it=ServerState.READY)).watch
    (row,) = watch.rows()
    document = watch.document()

    assert (row["name"], row["state"], row["is_remote"], row["cli_options"]) == ("it", "ready", True, None)
    assert row["ready_since"] > 0
    assert "servers" not in document
    assert document["problem"] is None
    assert [session["client"] for session in document["sessions"]] == ["ci"]


def test_changes_of_states_are_told(quick: None, manager: MCPClientManager) -> None:
    watched = Watched(manager, status_of(it=ServerState.READY))
    stop = watched.watch.start(lambda *told: watched.states.put(told))
    try:
        assert watched.states.get(timeout=PATIENCE) == ("it", None, "ready", 0, None)
        watched.answer = status_of(it=ServerState.FAILED)
        assert watched.states.get(timeout=PATIENCE) == ("it", "ready", "failed", 0, None)
    finally:
        stop()


def test_a_gateway_that_cannot_be_asked_keeps_what_was_known(quick: None, manager: MCPClientManager) -> None:
    watched = Watched(manager, status_of(it=ServerState.READY))
    stop = watched.watch.start(lambda *_: None)
    try:
        watched.answer = OSError("connection refused")
        assert wait_until(lambda: watched.watch.document()["problem"] == "connection refused")
        assert [row["name"] for row in watched.watch.rows()] == ["it"]
        watched.answer = status_of(it=ServerState.READY)
        assert wait_until(lambda: watched.watch.document()["problem"] is None)
    finally:
        stop()


def test_the_manager_gets_the_servers_that_the_gateway_gets(quick: None, manager: MCPClientManager) -> None:
    watched = Watched(manager, status_of())
    stop = watched.watch.start(lambda *_: None)
    try:
        watched.answer = status_of(new=ServerState.READY)
        assert wait_until(lambda: manager.list_servers() == ["new"])
        watched.answer = status_of()
        assert wait_until(lambda: manager.list_servers() == [])
    finally:
        stop()
