from typing import Any

from gaia.mcp.config.placement import Placement
from gaia.mcp.supervision.events import ServerState
from tests.hosts import LocalEngine
from tests.unit.mcp.cluster.conftest import Place, add, link_of

SHARED = Placement(lifetime="detached")


def test_a_server_that_cannot_be_started_leaves_no_host(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place({**demo_server, "command": "no-such-command"})
    assert not client.connect()
    assert "no-such-command" in str(client.last_error)
    assert link_of(engine).is_gone


def test_it_connects_again(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    for _ in range(2):
        assert client.connect(), client.last_error
        assert add(client) == {"sum": 3}
        client.disconnect()
        assert client.state is ServerState.CLOSED
    assert len(engine.hosts) == 2
