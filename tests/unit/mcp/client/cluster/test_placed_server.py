import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.client.cluster.link import HostLost
from gaia.mcp.client.cluster.placement import Placement
from gaia.mcp.client.cluster.transport import PlacedTransport
from gaia.mcp.client.cluster.wire import Launch
from gaia.mcp.client.supervision.events import Event, Restarted, ServerState, ToolsChanged
from gaia.mcp.errors import CallCancelled, ServerCrashed, StartFailed
from tests.hosts import LocalEngine, LocalLink
from tests.waiting import PATIENCE, wait_until

Place = Callable[..., MCPClient]


@pytest.fixture
def engine() -> LocalEngine:
    return LocalEngine()


@pytest.fixture
def place(engine: LocalEngine) -> Iterator[Place]:
    """Make a client of a server that an engine places."""
    clients: list[MCPClient] = []
    engines: list[Any] = []

    def make(
        server: dict[str, Any],
        engine: Any = engine,
        timeout: float = PATIENCE,
        lease: float = 30,
        placement: Placement | None = None,
        **options: Any,
    ) -> MCPClient:
        engines.append(engine)
        launch = Launch(command=server["command"], args=server["args"], env=server.get("env"))
        placement = placement or Placement(lease=lease)
        transport = PlacedTransport(placement, timeout, lambda: launch, lambda: engine)
        client = MCPClient("it", transport, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.disconnect()
    for used in engines:
        if isinstance(used, LocalEngine):
            used.close()


def link_of(engine: LocalEngine) -> LocalLink:
    assert engine.link is not None
    return engine.link


def add(client: MCPClient, **options: Any) -> Any:
    return client.call_tool("add", {"a": 1, "b": 2}, **options).get("structuredContent")


class TestConnecting:
    def test_it_is_ready_with_its_tools(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        assert client.connect(), client.last_error
        assert "add" in [tool.name for tool in client.list_tools()]
        assert client.protocol_version is not None
        assert add(client) == {"sum": 3}
        status = client.status
        assert status.placement is not None
        assert status.placement.node_id == "node-1"
        assert status.pid != status.placement.host_pid

    def test_no_cluster(self, place: Place, demo_server: dict[str, Any]) -> None:
        class NoEngine:
            def start(self, name: str, placement: Placement) -> LocalLink:
                raise StartFailed("there is no Ray cluster")

        client = place(demo_server, NoEngine())
        assert not client.connect()
        assert (client.last_error, client.state) == ("there is no Ray cluster", ServerState.FAILED)
        assert not [thread.name for thread in threading.enumerate() if thread.name == "mcp-cluster"]

    def test_no_place_is_reported_in_time(self, place: Place, demo_server: dict[str, Any]) -> None:
        engine = LocalEngine(has_place=False)
        client = place(demo_server, engine, 0.05)
        assert not client.connect()
        assert client.last_error == "no node has the resource 'browser'"
        assert link_of(engine).is_gone

    def test_it_is_ready_as_soon_as_there_is_a_place(self, place: Place, demo_server: dict[str, Any]) -> None:
        engine = LocalEngine(has_place=False)
        client = place(demo_server, engine, 0.05)
        # What its server has to get ready is another matter.
        client.transport.timeout = PATIENCE  # type: ignore[attr-defined]
        assert not client.connect(keep_trying=True)
        assert client.call_tool("add", {})["error_type"] == "server_unavailable"
        link_of(engine).renew()
        assert wait_until(client.is_connected)
        assert add(client, timeout=PATIENCE) == {"sum": 3}

    def test_a_server_that_cannot_be_started_leaves_no_host(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = place({**demo_server, "command": "no-such-command"})
        assert not client.connect()
        assert "no-such-command" in str(client.last_error)
        assert link_of(engine).is_gone

    def test_it_connects_again(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        for _ in range(2):
            assert client.connect(), client.last_error
            assert add(client) == {"sum": 3}
            client.disconnect()
            assert client.state is ServerState.CLOSED
        assert len(engine.hosts) == 2


class TestLosingAHost:
    def test_calls_wait_for_the_next_one(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        events: list[Event] = []
        assert client.connect()
        client.subscribe(events.append)
        link = link_of(engine)
        old = link.lose()
        assert old is not None
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        waiting = client.submit_tool("add", {"a": 1, "b": 2})
        link.renew()
        assert waiting.result(PATIENCE)["structuredContent"] == {"sum": 3}
        assert wait_until(lambda: any(isinstance(event, Restarted) for event in events))
        assert (client.status.restarts, client.status.generation) == (1, 2)
        old.stop()

    def test_a_greeting_that_is_lost_is_repeated(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
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

    def test_one_that_the_engine_holds_is_not_waited_for(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
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

    def test_a_call_that_was_sent_fails(
        self, place: Place, engine: LocalEngine, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        client = place(fault_server(faults=[{"tool": "echo", "hang": True}]))
        assert client.connect()
        sent = client.submit_tool("echo", {"text": "x"})
        assert wait_until(lambda: client.status.in_flight == 1)
        old = link_of(engine).lose()
        error = sent.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert old is not None
        old.stop()

    def test_one_that_was_only_out_of_reach_goes_on(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = place(demo_server)
        assert client.connect()
        pid, link = client.status.pid, link_of(engine)
        old = link.lose()
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        link.renew(old)
        assert wait_until(client.is_connected)
        assert add(client) == {"sum": 3}
        assert (client.status.pid, client.status.generation) == (pid, 1)


class TestLease:
    def test_no_call_is_sent_to_a_host_that_is_silent(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
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

    def test_one_that_answers_in_the_end_goes_on(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
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


SHARED = Placement(lifetime="detached")


class TestShared:
    def test_the_last_one_that_disconnects_ends_it(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        first, second = (place(demo_server, placement=SHARED) for _ in range(2))
        assert first.connect()
        assert second.connect()
        pid = first.status.pid
        assert pid == second.status.pid
        first.disconnect()
        assert add(second) == {"sum": 3}
        second.disconnect()
        assert pid is not None
        assert not psutil.pid_exists(pid)
        assert [link.is_gone for link in engine.links] == [False, True]

    def test_it_is_started_again_after_the_last_one_has_left(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = place(demo_server, placement=SHARED)
        for _ in range(2):
            assert client.connect()
            assert add(client) == {"sum": 3}
            client.disconnect()
        assert len(engine.hosts) == 2

    def test_one_that_comes_while_it_ends_has_it_started_again(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
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

    def test_another_configuration_is_refused(self, place: Place, demo_server: dict[str, Any]) -> None:
        first = place(demo_server, placement=SHARED)
        assert first.connect()
        second = place({**demo_server, "env": {"TOKEN": "s3cret"}}, placement=SHARED)
        assert not second.connect()
        assert "with another configuration, which differs in: env;" in str(second.last_error)
        assert add(first) == {"sum": 3}

    def test_one_whose_time_was_over_is_taken_up_again(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = place(demo_server, placement=Placement(lifetime="detached", lease=1))
        other = place(demo_server, placement=Placement(lifetime="detached", lease=1))
        assert client.connect()
        assert other.connect()
        pid = client.status.pid
        link = engine.links[0]
        link.cut_off()
        assert wait_until(lambda: len(engine.hosts[0]._users) == 1)
        link.heal()
        assert add(client, timeout=PATIENCE) == {"sum": 3}
        assert len(engine.hosts[0]._users) == 2
        assert client.status.pid == pid


class TestWhatAHostTells:
    def test_tools_that_change(self, place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
        tool = {"name": "late", "inputSchema": {"type": "object"}}
        client = place(fault_server(faults=[{"tool": "echo", "change_tools": [tool]}]))
        events: list[Event] = []
        assert client.connect()
        client.subscribe(events.append)
        client.call_tool("echo", {"text": "x"})
        assert wait_until(lambda: any(isinstance(one, ToolsChanged) and "late" in one.added for one in events))

    def test_a_question_is_asked_here(self, place: Place, fault_server: Callable[..., dict[str, Any]]) -> None:
        question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
        server = fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])
        client = place(server, on_elicitation=lambda _: {"action": "decline"})
        assert client.connect()
        assert "decline" in str(client.call_tool("client_answers", timeout=PATIENCE))

    def test_a_question_that_was_not_offered_is_refused(
        self, place: Place, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
        server = fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}])
        client = place(server)
        assert client.connect()
        assert "-32601" in str(client.call_tool("client_answers", timeout=PATIENCE))


class TestReplacing:
    def test_a_fresh_process_takes_the_place(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        assert client.connect()
        before = client.status.pid
        assert client.restart()
        assert wait_until(lambda: client.status.pid != before)
        assert add(client) == {"sum": 3}


class TestTheEnd:
    def test_disconnect_waits_for_the_server(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
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
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = place(demo_server)
        assert client.connect()
        old = link_of(engine).lose()
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        client.disconnect()
        assert client.state is ServerState.CLOSED
        assert old is not None
        old.stop()

    def test_calls_have_time_to_finish(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        assert client.connect()
        future = client.submit_tool("sleep", {"seconds": 0.3})
        assert wait_until(lambda: client.status.in_flight == 1)
        client.disconnect(drain=PATIENCE)
        assert not future.result(PATIENCE).is_error
        with pytest.raises(RuntimeError):
            client.call_tool("add", {})

    def test_the_time_to_finish_may_be_cut_short(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        assert client.connect()
        future = client.submit_tool("sleep", {"seconds": PATIENCE})
        assert wait_until(lambda: client.status.in_flight == 1)
        client.request_disconnect(drain=PATIENCE)
        assert wait_until(lambda: client.state is ServerState.CLOSED)
        assert not future.done()
        client.disconnect()
        assert isinstance(future.exception(PATIENCE), CallCancelled)


class TestAtRest:
    def test_a_lazy_server_has_a_place_and_no_process(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server, lazy=True)
        assert client.connect()
        tools = [tool.name for tool in client.list_tools()]
        client.disconnect()
        assert client.connect(), "now it is known what it has"
        assert (client.state, client.status.pid) == (ServerState.EXITED, None)
        assert [tool.name for tool in client.list_tools()] == tools
        assert add(client) == {"sum": 3}
        assert client.status.pid is not None

    def test_one_that_is_not_used_is_stopped_until_the_next_call(
        self, place: Place, demo_server: dict[str, Any]
    ) -> None:
        client = place(demo_server, idle_stop=0.1)
        assert client.connect()
        assert wait_until(lambda: client.state is ServerState.EXITED)
        assert add(client) == {"sum": 3}

    def test_it_can_be_woken(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server, lazy=True)
        assert client.connect()
        client.disconnect()
        assert client.connect()
        client.wake()
        assert wait_until(client.is_connected)
