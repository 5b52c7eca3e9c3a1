from typing import Any

import psutil

from gaia.mcp.supervision.events import ServerState
from tests.hosts import LocalEngine
from tests.unit.mcp.cluster.conftest import Place, add, link_of
from tests.waiting import PATIENCE, wait_until


def test_no_call_is_sent_to_a_host_that_is_silent(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place(demo_server, lease=1)
    assert client.connect()
    link, pid = link_of(engine), client.status.pid
    link.cut_off()
    assert wait_until(lambda: client.state is ServerState.RESTARTING)
    assert "has not answered for 1 s" in str(client.last_error)
    assert pid is not None
    assert wait_until(lambda: not psutil.pid_exists(pid)), "its host has stopped it"
    sent = link.sent.count("call")
    waiting = client.submit_tool("add", {"a": 1, "b": 2})
    assert wait_until(lambda: client.status.queued == 1)
    assert link.sent.count("call") == sent
    link.heal()
    assert not waiting.result(PATIENCE).is_error
    assert client.status.generation == 2


def test_one_that_answers_in_the_end_goes_on(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server, lease=1)
    assert client.connect()
    link, pid = link_of(engine), client.status.pid
    # Only the driver's own time will be over.
    (user,) = engine.hosts[0]._users.values()
    lease = user.lease
    lease.end()
    lease.seconds, lease._deadline = 3.0, float("inf")
    link.cut_off()
    assert wait_until(lambda: client.state is ServerState.RESTARTING)
    link.heal()
    assert wait_until(client.is_connected)
    assert add(client) == {"sum": 3}
    assert client.status.pid == pid
