from unittest.mock import Mock

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.placed_status import PlacedCondition
from gaia.mcp.cluster.wire import Greeting, StateReached
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import CallStatistics, ServerStatus
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.clock import SystemClock


class Server:
    def __init__(self) -> None:
        self.calls = PlacedCalls("it", 8, 8, ClusterLoop(SystemClock()), Mock(), lambda *_: None)
        self.condition = PlacedCondition("it", self.calls)

    @property
    def status(self) -> ServerStatus:
        return self.condition.status(CallStatistics(), 3)

    def greeted(self, incarnation: str) -> None:
        self.condition.host_greeted(Greeting(incarnation=incarnation, node="n", node_id="id", pid=7, clock=0.0), None)


def test_generations_count_over_all_hosts() -> None:
    server = Server()
    server.greeted("one")
    server.condition.host_reached(StateReached(state=ServerState.READY, generation=3))
    server.condition.host_lost("the node died")
    server.greeted("two")
    server.condition.host_reached(StateReached(state=ServerState.READY, generation=1))
    assert server.status.generation == 4


def test_it_has_no_place_while_it_has_no_host() -> None:
    server = Server()
    assert server.status.placement is None
    server.greeted("one")
    assert server.status.placement == PlacementStatus(node="n", node_id="id", host_pid=7, hosts=1)
    server.condition.host_lost("the node died")
    assert (server.status.placement, server.status.last_error) == (None, "the node died")
    server.greeted("two")
    assert server.status.placement == PlacementStatus(node="n", node_id="id", host_pid=7, hosts=2)


def test_the_next_attempt_is_told_only_while_there_is_one() -> None:
    server = Server()
    server.condition.host_reached(StateReached(state=ServerState.FAILED, retry_in=60))
    assert server.status.retry_in is None
    server.calls.move_to(ServerState.FAILED, "it crashes")
    assert 0 < (server.status.retry_in or 0) <= 60


def test_it_is_up_while_it_is_ready() -> None:
    server = Server()
    server.condition.host_reached(StateReached(state=ServerState.READY, pid=9))
    assert server.status.uptime is not None
    assert server.status.pid == 9
    server.condition.host_reached(StateReached(state=ServerState.RESTARTING))
    assert server.status.uptime is None


def test_what_is_ready_has_a_place() -> None:
    """Also for a thread that looks while the host is lost."""
    server = Server()
    states = iter([ServerState.READY, ServerState.RESTARTING])

    class Losing:
        in_flight = 0
        state = property(lambda _: next(states))

        def __len__(self) -> int:
            return 0

    server.condition._calls = Losing()  # type: ignore[assignment]
    status = server.status
    assert (status.state, status.placement) == (ServerState.RESTARTING, None)
