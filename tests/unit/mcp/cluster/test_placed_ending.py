import threading
from typing import Any

import psutil
import pytest

from gaia.mcp.cluster.cluster_loop import cluster_loop
from gaia.mcp.cluster.link import HostGone, OnAnswer
from gaia.mcp.cluster.placed_ending import PlacedEnding
from gaia.mcp.cluster.placed_server import PlacedServer
from gaia.mcp.errors import CallCancelled
from gaia.mcp.supervision.events import Event, ServerState, StateChanged
from tests.hosts import LocalEngine
from tests.unit.mcp.cluster.conftest import Place, link_of
from tests.unit.mcp.cluster.test_placed_calls import Loop
from tests.waiting import PATIENCE, wait_until


def test_disconnect_waits_for_the_server(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()
    pid = client.status.pid
    assert pid is not None
    client.disconnect()
    assert not psutil.pid_exists(pid)
    assert link_of(engine).is_gone
    with pytest.raises(RuntimeError):
        client.call_tool("add", {})


def test_without_a_host_it_does_not_wait_for_one(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place(demo_server)
    assert client.connect()
    old = link_of(engine).lose()
    assert wait_until(lambda: client.state is ServerState.RESTARTING)
    client.disconnect()
    assert client.state is ServerState.CLOSED
    assert old is not None
    old.stop()


def test_calls_have_time_to_finish(place: Place, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()
    future = client.submit_tool("sleep", {"seconds": 0.3})
    assert wait_until(lambda: client.status.in_flight == 1)
    client.disconnect(drain=PATIENCE)
    assert not future.result(PATIENCE).is_error
    with pytest.raises(RuntimeError):
        client.call_tool("add", {})


def test_the_end_does_not_overtake_a_call(place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()
    link = link_of(engine)
    link.cut_off()
    future = client.submit_tool("add", {"a": 1, "b": 2})
    client._engine.request_disconnect(drain=PATIENCE)
    # The thread that ends it has come so far that it has told the host, if it does.
    assert wait_until(lambda: client.state is ServerState.CLOSED)
    passed = threading.Event()
    cluster_loop.post(passed.set)
    assert passed.wait(PATIENCE)
    assert "stop" not in link.sent
    link.heal()
    assert future.result(PATIENCE)["structuredContent"] == {"sum": 3}


def test_it_stays_closed_when_the_host_falls_silent(
    place: Place, engine: LocalEngine, demo_server: dict[str, Any]
) -> None:
    client = place(demo_server)
    events: list[Event] = []
    assert client.connect()
    client.subscribe(events.append)
    link, server = link_of(engine), client._engine.session.supervisor
    assert isinstance(server, PlacedServer)
    link.cut_off()
    future = client.submit_tool("add", {"a": 1, "b": 2})
    client._engine.request_disconnect(drain=PATIENCE)
    host = server._host
    assert host is not None
    cluster_loop.post(lambda: server.host_silent(host))
    assert isinstance(future.exception(PATIENCE), CallCancelled)
    link.heal()
    client.disconnect()
    assert [one.new for one in events if isinstance(one, StateChanged)] == [ServerState.CLOSED]


def test_the_time_to_finish_may_be_cut_short(place: Place, demo_server: dict[str, Any]) -> None:
    client = place(demo_server)
    assert client.connect()
    future = client.submit_tool("sleep", {"seconds": PATIENCE})
    assert wait_until(lambda: client.status.in_flight == 1)
    client._engine.request_disconnect(drain=PATIENCE)
    assert wait_until(lambda: client.state is ServerState.CLOSED)
    assert not future.done()
    client.disconnect()
    assert isinstance(future.exception(PATIENCE), CallCancelled)


class Link:
    """Keeps what it is told until the test answers."""

    actor_id = "a"
    is_left = False

    def __init__(self) -> None:
        self.told: list[tuple[tuple[object, ...], OnAnswer]] = []
        self.kills = self.withdrawals = 0

    def tell(self, *message: object, on_answer: OnAnswer = lambda *_: None) -> None:
        self.told.append((message, on_answer))

    def kill(self) -> None:
        self.kills += 1

    def withdraw(self) -> None:
        self.withdrawals += 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Ending:
    def __init__(self, incarnation: str | None = "one", *, is_shared: bool = False) -> None:
        self.link, self.loop, self.log = Link(), Loop(), list[str]()
        self.ending = PlacedEnding(
            self.link,
            incarnation,
            is_shared=is_shared,
            loop=self.loop,
            on_stopped=lambda: self.log.append("stopped"),
            on_ended=lambda: self.log.append("ended"),
        )

    def answer(self, nth: int, answer: object, failure: BaseException | None = None) -> None:
        self.link.told[nth][1](answer, failure)
        self.loop.run()


def test_a_host_is_killed_after_its_server_has_stopped() -> None:
    one = Ending()
    one.ending.begin()
    assert (one.link.told[0][0], one.link.kills, one.log) == (("stop",), 0, [])
    one.answer(0, None)
    assert (one.link.kills, one.log) == (1, ["stopped"])
    one.answer(1, None, HostGone("killed"))
    assert one.log == ["stopped", "ended"]


def test_a_host_that_others_use_is_left_to_them() -> None:
    one = Ending(is_shared=True)
    one.ending.begin()
    assert one.link.told[0][0] == ("leave", "one")
    one.answer(0, False)
    assert (one.link.kills, one.log) == (0, ["stopped", "ended"])


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_host_that_was_not_greeted(is_shared: bool) -> None:
    one = Ending(None, is_shared=is_shared)
    one.ending.begin()
    if is_shared:
        one.loop.steps.drain(PATIENCE)
        one.loop.run()
    assert (one.link.kills, one.link.withdrawals) == ((0, 1) if is_shared else (1, 0))
    assert one.log == (["ended"] if is_shared else [])
