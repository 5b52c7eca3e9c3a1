from typing import Any

import pytest

from gaia.mcp.cluster.host_features import Questions
from gaia.mcp.cluster.host_user import HostUser
from gaia.mcp.cluster.hosted_server import HostedServer
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeClock
from tests.hosts import Driver


@pytest.fixture
def driver(demo_server: dict[str, Any]) -> Driver:
    return Driver(demo_server, FakeClock())


@pytest.fixture
def server(driver: Driver) -> HostedServer:
    return HostedServer(driver.settings, Questions(lambda _: True), driver.clock, is_shared=True)


def test_it_is_not_started_before_it_is_told_to(server: HostedServer) -> None:
    assert server.supervisor.state is ServerState.CREATED
    server.stop()
    assert server.supervisor.state is ServerState.CREATED


def test_what_some_user_wants_is_wanted(server: HostedServer, driver: Driver) -> None:
    first, second = (HostUser(driver.settings, name, driver.clock) for name in ("one", "two"))
    first.resources, second.resources = ("a:", "b:"), ("b:", "c:")
    first.log_level, second.log_level = "info", "error"
    wanted = server.hooks.subscriptions
    server.subscribe([first, second])
    assert (wanted.resources, wanted.log_level) == (("a:", "b:", "c:"), "error")
    server.subscribe([second])
    assert wanted.resources == ("b:", "c:")
