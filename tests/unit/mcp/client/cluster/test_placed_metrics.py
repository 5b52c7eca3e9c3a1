from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.client.cluster.placed_metrics import count_return
from gaia.mcp.client.cluster.placement import Placement
from gaia.mcp.client.cluster.transport import PlacedTransport
from gaia.mcp.client.cluster.wire import Launch
from gaia.mcp.client.supervision.events import Restarted, ServerState
from tests.hosts import LocalEngine
from tests.tracing import Metering
from tests.waiting import PATIENCE, wait_until

OURS = {"gaia.mcp.server.name": "it"}


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine()
    yield engine
    engine.close()


@pytest.fixture
def client(engine: LocalEngine, demo_server: dict[str, Any]) -> Iterator[MCPClient]:
    launch = Launch(command=demo_server["command"], args=demo_server["args"])
    client = MCPClient("it", PlacedTransport(Placement(), PATIENCE, lambda: launch, lambda: engine))
    assert client.connect(), client.last_error
    yield client
    client.disconnect()


def test_a_host_that_is_lost(metering: Metering, client: MCPClient, engine: LocalEngine) -> None:
    assert engine.link is not None
    old = engine.link.lose()
    assert old is not None
    assert wait_until(lambda: client.state is ServerState.RESTARTING)
    engine.link.renew()
    # The new host has started its server, and restarted none.
    assert wait_until(lambda: metering.value("gaia.mcp.server.restarts", **OURS) == 1)
    assert metering.value("gaia.mcp.server.crashes", **OURS, **{"gaia.mcp.reason": "host_lost"}) == 1
    old.stop()


def test_a_server_that_is_lost(metering: Metering, client: MCPClient, caplog: pytest.LogCaptureFixture) -> None:
    client.call_tool("crash")
    # The host, which is in this process here, counts it too, with another reason.
    ours = {**OURS, "gaia.mcp.reason": "lost_on_node"}
    assert wait_until(lambda: metering.value("gaia.mcp.server.crashes", **ours) == 1)
    assert wait_until(lambda: any(record.name.endswith("placed_server") for record in caplog.records))


def test_returns(metering: Metering) -> None:
    count_return(Restarted("it", 2, downtime=0.5))
    count_return(Restarted("it", 3, downtime=0.0, reason="recycled: max_calls"))
    assert metering.value("gaia.mcp.server.restarts", **OURS) == 1
    assert metering.value("gaia.mcp.server.recyclings", **OURS, **{"gaia.mcp.reason": "max_calls"}) == 1
    (recovery,) = metering.points("gaia.mcp.server.recovery.duration")
    assert (recovery.count, recovery.sum) == (1, 0.5)
