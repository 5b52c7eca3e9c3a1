from collections.abc import Callable
from typing import Any

import psutil

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import ServerCrashed
from gaia.mcp.supervision.events import Event, Restarted, ServerState
from tests.hosts import LocalEngine
from tests.unit.mcp.cluster.conftest import Place, add, link_of
from tests.waiting import PATIENCE, wait_until

SHARED = Placement(lifetime="detached")


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

    def test_no_place_is_reported_in_time(self, place: Place, demo_server: dict[str, Any]) -> None:
        engine = LocalEngine(has_place=False)
        client = place(demo_server, engine, 0.05)
        assert not client.connect()
        assert client.last_error == "no node has the resource 'browser'"
        assert link_of(engine).is_gone

    def test_it_is_ready_as_soon_as_there_is_a_place(self, place: Place, demo_server: dict[str, Any]) -> None:
        engine = LocalEngine(has_place=False)
        # If its server takes longer than that, its host tries again.
        client = place(demo_server, engine, 1.0)
        assert not client.connect(keep_trying=True)
        assert client.call_tool("add", {})["error_type"] == "server_unavailable"
        link_of(engine).renew()
        assert wait_until(client.is_connected)
        assert add(client, timeout=PATIENCE) == {"sum": 3}


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


class TestReplacing:
    def test_a_fresh_process_takes_the_place(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        assert client.connect()
        before = client.status.pid
        assert client.restart()
        assert wait_until(lambda: client.status.pid != before)
        assert add(client) == {"sum": 3}


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
        client._engine.session.wake()
        assert wait_until(client.is_connected)
