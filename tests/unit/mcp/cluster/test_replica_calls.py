from typing import Any

from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.cluster.replica_calls import ReplicaCalls
from gaia.mcp.errors import CallCancelled, ServerCrashed
from gaia.mcp.supervision.events import ServerState
from tests.unit.mcp.cluster.test_placed_calls import Link, Server


class Replicas:
    """A server whose two replicas are open."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.calls.close()
        self.links = [Link(), Link()]
        self.parts = [ReplicaCalls(self.server.calls) for _ in self.links]
        for number in (0, 1):
            self.open(number)

    def open(self, number: int) -> None:
        link: Any = self.links[number]
        self.parts[number].open(Gate(link, f"host-{number}", HostClock(), 1))

    @property
    def sent(self) -> list[int]:
        return [len(link.calls) for link in self.links]


def test_calls_go_to_the_one_with_fewer() -> None:
    replicas = Replicas()
    for _ in range(3):
        replicas.server.submit()
    assert sorted(replicas.sent) == [1, 2]
    assert [part.in_flight for part in replicas.parts] == replicas.sent


def test_one_that_is_closed_gets_none() -> None:
    replicas = Replicas()
    replicas.parts[0].close()
    for _ in range(2):
        replicas.server.submit()
    assert replicas.sent == [0, 2]
    assert replicas.server.calls.state is ServerState.READY


def test_what_it_has_counts_when_it_is_open_again() -> None:
    replicas = Replicas()
    calls = [replicas.server.submit() for _ in range(2)]
    replicas.parts[0].close()
    replicas.open(0)
    assert [part.in_flight for part in replicas.parts] == [1, 1]
    for link in replicas.links:
        link.lose(0)
    assert all(isinstance(call.error, ServerCrashed) for call in calls)
    assert [part.in_flight for part in replicas.parts] == [0, 0]


def test_a_tool_that_is_another_one_is_not_called_there() -> None:
    replicas = Replicas()
    replicas.parts[0].differ({"echo"})
    for _ in range(2):
        replicas.server.submit(tool="echo")
    assert replicas.sent == [0, 2]
    replicas.server.submit(tool="add")
    assert replicas.sent == [1, 2]


def test_the_calls_of_one_that_is_removed_end_as_in_a_crash() -> None:
    replicas = Replicas()
    calls = [replicas.server.submit() for _ in range(2)]
    replicas.parts[0].move_to(ServerState.CLOSED, "it is not needed any more")
    (ended,) = [call for call in calls if call.ended]
    assert isinstance(ended.error, ServerCrashed)
    assert ended.error.delivery == "unknown"


def test_those_of_a_server_that_is_closed_are_cancelled() -> None:
    replicas = Replicas()
    call = replicas.server.submit()
    replicas.server.calls.move_to(ServerState.CLOSED, "it was disconnected", finish=True)
    for part in replicas.parts:
        part.move_to(ServerState.CLOSED, "it was disconnected")
    assert isinstance(call.error, CallCancelled)
