import threading
from typing import Any

from gaia.mcp.cluster.link import HostLost
from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import StartFailed
from gaia.mcp.supervision.events import ServerState
from tests.hosts import LocalEngine, LocalLink
from tests.unit.mcp.cluster.conftest import Place, add, link_of
from tests.waiting import PATIENCE, wait_until

SHARED = Placement(lifetime="detached")


def test_no_cluster(place: Place, demo_server: dict[str, Any]) -> None:
    class NoEngine:
        def start(self, name: str, placement: Placement) -> LocalLink:
            raise StartFailed("there is no Ray cluster")

    client = place(demo_server, NoEngine())
    assert not client.connect()
    assert (client.last_error, client.state) == ("there is no Ray cluster", ServerState.FAILED)
    assert not [thread.name for thread in threading.enumerate() if thread.name == "mcp-cluster"]


def test_a_greeting_that_is_lost_is_repeated(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()
    link_of(engine).greetings_to_lose = 3
    old = link_of(engine).lose()
    link_of(engine).renew()
    assert old is not None
    old.stop()
    assert wait_until(lambda: client.status.generation == 2)
    assert add(client) == {"sum": 3}
    assert link_of(engine).greetings_to_lose == 0


def test_one_that_comes_while_it_ends_has_it_started_again(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    first, second = (place(demo_server, placement=SHARED) for _ in range(2))
    assert first.connect()
    link_of(engine).kill()
    # It finds the actor that has just been killed.
    found = [link_of(engine)]
    start = engine.start

    def start_once(name: str, placement: Placement) -> LocalLink:
        return found.pop() if found else start(name, placement)

    engine.start = start_once  # type: ignore[method-assign]
    assert second.connect(), second.last_error
    assert add(second) == {"sum": 3}
    assert found == []


def test_another_host_takes_the_place_of_one_that_is_gone_for_good(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place(demo_server)
    assert client.connect()
    link_of(engine).kill()
    assert wait_until(lambda: client.state is ServerState.RESTARTING)
    assert add(client, timeout=PATIENCE) == {"sum": 3}
    assert (len(engine.links), client.status.generation, client.status.restarts) == (2, 2, 1)


def test_another_host_takes_the_place_of_one_that_cannot_be_greeted(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    start = engine.start

    def start_dead(name: str, placement: Placement) -> LocalLink:
        engine.start = start  # type: ignore[method-assign]
        link = start(name, placement)
        link.kill()
        return link

    engine.start = start_dead  # type: ignore[method-assign]
    client = place(demo_server)
    assert not client.connect(keep_trying=True)
    assert "its actor is gone: killed" in str(client.last_error)
    assert wait_until(client.is_connected)
    assert add(client) == {"sum": 3}


def test_the_end_does_not_wait_for_another_host(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()
    link_of(engine).kill()
    assert wait_until(lambda: client.state is ServerState.RESTARTING)
    client.disconnect()
    assert client.state is ServerState.CLOSED


def test_no_other_host_is_started_by_a_program_that_has_left_the_cluster(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place(demo_server)
    assert client.connect()
    link_of(engine).is_left = True
    link_of(engine).kill()
    assert wait_until(lambda: client.state is ServerState.FAILED)
    assert "has left the cluster" in str(client.last_error)
    assert client.status.retry_in is None
    assert len(engine.links) == 1
    assert client.restart()
    assert add(client) == {"sum": 3}


def test_one_that_the_engine_holds_is_not_waited_for(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place(demo_server)
    assert client.connect()
    link = link_of(engine)
    link.greetings_to_hold = 2
    old = link.lose()
    link.renew()
    assert old is not None
    old.stop()
    assert add(client) == {"sum": 3}
    for on_answer in link.held_greetings:
        on_answer(None, HostLost("it was being started"))
    assert add(client) == {"sum": 3}
    assert client.status.generation == 2


def test_a_shared_host_that_waits_for_a_place_is_not_left_waiting(place: Place, demo_server: dict[str, Any]) -> None:
    engine = LocalEngine(has_place=False)
    client = place(demo_server, engine, 0.05, placement=SHARED)
    assert not client.connect(keep_trying=True)
    assert not link_of(engine).is_gone
    client.disconnect()
    assert link_of(engine).is_gone


def test_a_cluster_that_is_not_joined_in_time_is_reported_for_all_servers(
    place: Place, demo_server: dict[str, Any]
) -> None:
    is_joined = threading.Event()

    class SlowEngine:
        def start(self, name: str, placement: Placement) -> LocalLink:
            assert is_joined.wait(PATIENCE)
            raise StartFailed("there is no Ray cluster")

    clients = [place(demo_server, SlowEngine(), 0.05) for _ in range(6)]
    threads = [threading.Thread(target=client.connect) for client in clients]
    for thread in threads:
        thread.start()
    try:
        for client in clients:
            assert wait_until(lambda client=client: client.state is ServerState.FAILED)  # type: ignore[misc]
            assert client.last_error == "the Ray cluster was not joined in time"
    finally:
        is_joined.set()
        for thread in threads:
            thread.join(PATIENCE)
