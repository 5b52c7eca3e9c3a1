from typing import Any

from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.events import ServerState
from tests.hosts import LocalEngine
from tests.unit.mcp.cluster.conftest import Place, link_of
from tests.waiting import wait_until


def test_settings_are_asked_for_at_each_start(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()

    def launch() -> Any:
        raise ConfigError("TOKEN is not set")

    assert isinstance(client.transport, PlacedTransport)
    client.transport.launch = launch
    old = link_of(engine).lose()
    assert wait_until(lambda: client.state is ServerState.FAILED)
    assert client.last_error == "TOKEN is not set"
    assert old is not None
    old.stop()
