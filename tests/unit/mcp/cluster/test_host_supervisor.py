from typing import Any

from gaia.mcp.cluster.host_features import HostFeatures
from gaia.mcp.cluster.host_hooks import HostHooks
from gaia.mcp.cluster.host_supervisor import new_supervisor
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.testing import FakeClock
from tests.hosts import Driver


def test_it_has_not_been_started(demo_server: dict[str, Any]) -> None:
    clock, settings = FakeClock(), Driver(demo_server).settings
    requests = ServerRequests("it", HostFeatures(), CallbackPool("it", "server-requests"), clock, 30)
    supervisor = new_supervisor(settings, HostHooks("it", 30, clock, None), requests, clock)
    assert (supervisor.name, supervisor.state) == ("it", ServerState.CREATED)
