from __future__ import annotations

import pytest

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.readiness import Presence, enabled_servers
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus

CONFIG = MCPConfig.in_memory(
    {"up": {"command": "up"}, "down": {"command": "down"}, "off": {"command": "off", "disabled": True}}
)


def presence(*statuses: ServerStatus) -> Presence:
    return Presence(lambda: CONFIG, lambda: list(statuses), lambda: {status.name for status in statuses})


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
    required = presence(UP, FAILED).required(())
    assert required.is_over()
    with pytest.raises(ServerUnavailable, match="no such program") as raised:
        required.outcome()
    assert "off" not in str(raised.value)
    presence(UP, FAILED).required(("up",)).outcome()


def test_the_wait_for_required_servers_goes_on_while_one_of_them_may_come() -> None:
    assert not presence(UP, RESTARTING).required(("up", "down", "off")).is_over()


def test_why_one_server_is_absent() -> None:
    assert presence(UP).why_absent("up") is None
    assert "disabled" in str(presence(UP).why_absent("off"))
