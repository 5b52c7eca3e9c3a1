from __future__ import annotations

from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.manager_engine import ManagerEngine
from gaia.mcp.client.readiness import enabled_servers
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus

CONFIG = MCPConfig.in_memory(
    {"up": {"command": "up"}, "down": {"command": "down"}, "off": {"command": "off", "disabled": True}}
)


def presence(*statuses: ServerStatus) -> ManagerEngine:
    engine = MCPClientManager(CONFIG)._engine
    engine.registry = Mock(connected={status.name for status in statuses}, status=lambda: list(statuses))
    return engine


UP = ServerStatus(name="up", state=ServerState.READY)
RESTARTING = ServerStatus(name="down", state=ServerState.RESTARTING)
FAILED = ServerStatus(name="down", state=ServerState.FAILED, last_error="no such program")


def test_servers_that_were_started_are_what_is_waited_for() -> None:
    assert presence(UP).all_ready().outcome()
    waiting = presence(UP, RESTARTING).all_ready()
    assert (waiting.is_over(), waiting.outcome()) == (False, False)


def test_a_server_that_cannot_become_ready_ends_the_wait_for_all() -> None:
    failed = presence(UP, FAILED).all_ready()
    assert (failed.is_over(), failed.outcome()) == (True, False)


def test_required_servers_are_those_that_are_enabled() -> None:
    assert enabled_servers(CONFIG) == ["up", "down"]
    required = presence(UP, FAILED).presence_of(())
    assert required.is_over()
    with pytest.raises(ServerUnavailable, match="no such program") as raised:
        required.outcome()
    assert "off" not in str(raised.value)
    presence(UP, FAILED).presence_of(("up",)).outcome()


def test_the_wait_for_required_servers_goes_on_while_one_of_them_may_come() -> None:
    assert not presence(UP, RESTARTING).presence_of(("up", "down", "off")).is_over()


def test_why_one_server_is_absent() -> None:
    assert presence(UP)._why_absent("up") is None
    assert "disabled" in str(presence(UP)._why_absent("off"))
