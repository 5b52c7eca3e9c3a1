from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.config.placement import Placement, Replicas
from gaia.mcp.errors import NotConnected, NotOffered, ServerCrashed, ServerUnavailable, SessionLost
from gaia.mcp.supervision.events import Event, ReplicaChanged, Restarted, ServerState, StateChanged
from tests.hosts import LocalEngine, LocalLink
from tests.waiting import PATIENCE, wait_until

Place = Callable[..., MCPClient]


@pytest.fixture
def place(place: Place) -> Place:
    """Make a client of a server with replicas, that the engine places."""

    def make(server: dict[str, Any], replicas: int | Replicas = 2, **options: Any) -> MCPClient:
        return place(server, placement=Placement(replicas=replicas, stateless=True, max_pending=8), **options)

    return make


def connected(client: MCPClient, replicas: int = 2) -> MCPClient:
    """The client, when so many replicas are ready."""
    assert client.connect(), client.last_error
    assert wait_until(lambda: ready(client) == replicas)
    return client


def ready(client: MCPClient) -> int:
    return sum(one.state is ServerState.READY for one in client.status.replicas)


def in_flight(client: MCPClient) -> list[int]:
    return [one.in_flight for one in client.status.replicas]


def only_one(engine: LocalEngine, *, asked_again: bool) -> LocalLink:
    """The replica that was asked for its tools because those of the other one changed, or that other one."""
    assert wait_until(lambda: any("relist" in link.sent for link in engine.links))
    (one,) = [link for link in engine.links if ("relist" in link.sent) is asked_again]
    return one


class TestConnecting:
    def test_it_is_ready_with_the_first(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        assert client.call_tool("add", {"a": 1, "b": 2})["structuredContent"] == {"sum": 3}
        status = client.status
        assert [one.replica for one in status.replicas] == [1, 2]
        assert status.placement is not None
        assert status.protocol_version == client.protocol_version
        assert status.generation == 2
        assert len({one.pid for one in status.replicas}) == 2
        client.disconnect()
        assert client.state is ServerState.CLOSED
        assert all(link.is_gone for link in engine.links)

    def test_all_of_them_fail(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = place({**demo_server, "command": "no-such-command"})
        assert not client.connect()
        assert "no-such-command" in str(client.last_error)
        assert client.state is ServerState.FAILED
        assert all(link.is_gone for link in engine.links)

    def test_it_is_kept_trying(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        engine._has_place = False
        client = place(demo_server, start_timeout=1.0)
        assert not client.connect(keep_trying=True)
        assert client.call_tool("add", {})["error_type"] == "server_unavailable"
        assert not client.is_connected()
        assert client.state is ServerState.FAILED

    def test_it_connects_again(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        client.disconnect()
        connected(client)
        assert not client.call_tool("add", {"a": 1, "b": 2}).is_error


class TestCalls:
    def test_they_go_where_the_fewest_are(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        futures = [client.submit_tool("sleep", {"seconds": PATIENCE}) for _ in range(4)]
        assert in_flight(client) == [2, 2]
        for future in futures:
            future.cancel()
        assert in_flight(client) == [0, 0]

    def test_each_replica_has_its_limit(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        futures = [client.submit_tool("sleep", {"seconds": PATIENCE}) for _ in range(17)]
        assert in_flight(client) == [8, 8]
        assert client.status.queued == 1
        futures[0].cancel()
        assert wait_until(lambda: client.status.queued == 0)
        for future in futures:
            future.cancel()

    def test_calls_have_time_to_finish(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        futures = [client.submit_tool("sleep", {"seconds": 0.3}) for _ in range(2)]
        client.disconnect(drain=PATIENCE)
        assert not any(future.result(PATIENCE).is_error for future in futures)


class TestLosingOne:
    def test_the_server_stays_ready(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        events: list[Event] = []
        client.subscribe(events.append)
        old = engine.links[0].lose()
        assert old is not None
        assert wait_until(lambda: ready(client) == 1)
        assert client.is_connected()
        assert not client.call_tool("add", {"a": 1, "b": 2}).is_error
        assert wait_until(
            lambda: any(isinstance(one, ReplicaChanged) and one.new is ServerState.RESTARTING for one in events)
        )
        engine.links[0].renew()
        assert wait_until(lambda: ready(client) == 2)
        assert not [one for one in events if isinstance(one, StateChanged | Restarted)]
        assert client.status.restarts == 0
        assert sum(one.restarts for one in client.status.replicas) == 1
        old.stop()

    def test_what_was_sent_there_fails_and_the_rest_does_not(
        self, place: Place, engine: LocalEngine, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        client = connected(place(fault_server(faults=[{"tool": "echo", "hang": True}])))
        futures = [client.submit_tool("echo", {"text": "x"}) for _ in range(2)]
        old = engine.links[0].lose()
        assert old is not None
        assert wait_until(lambda: any(future.done() for future in futures))
        (lost,) = [future for future in futures if future.done()]
        error = lost.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        old.stop()

    def test_a_safe_call_is_repeated_by_another_one(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = connected(place(demo_server))
        futures = [client.submit_tool("sleep", {"seconds": PATIENCE}) for _ in range(2)]
        old = engine.links[0].lose()
        assert old is not None
        assert wait_until(lambda: sorted(in_flight(client)) == [0, 2])
        for future in futures:
            future.cancel()
        old.stop()

    def test_all_are_lost(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        events: list[Event] = []
        client.subscribe(events.append)
        old = [link.lose() for link in engine.links]
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        waiting = client.submit_tool("add", {"a": 1, "b": 2})
        engine.links[1].renew()
        assert not waiting.result(PATIENCE).is_error
        assert wait_until(lambda: any(isinstance(one, Restarted) for one in events))
        assert client.status.restarts == 1
        for host in old:
            assert host is not None
            host.stop()


class TestDefinitions:
    def test_a_tool_of_one_replica_is_called_there(
        self, place: Place, engine: LocalEngine, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        late = {"name": "late", "inputSchema": {"type": "object"}}
        client = connected(place(fault_server(faults=[{"tool": "echo", "change_tools": [late]}])))
        client.call_tool("echo", {"text": "x"})
        assert wait_until(lambda: "late" in {tool.name for tool in client.list_tools()})
        other = only_one(engine, asked_again=True)
        sent = other.sent.count("call")
        results = [client.submit_tool("late", {}).result(PATIENCE) for _ in range(4)]
        assert not any(result.is_error for result in results)
        assert other.sent.count("call") == sent

    def test_the_tools_are_those_of_the_replicas_that_are_there(
        self, place: Place, engine: LocalEngine, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        late = {"name": "late", "inputSchema": {"type": "object"}}
        client = connected(place(fault_server(faults=[{"tool": "echo", "change_tools": [late]}])))
        client.call_tool("echo", {"text": "x"})
        assert wait_until(lambda: "late" in {tool.name for tool in client.list_tools()})
        old = only_one(engine, asked_again=False).lose()
        assert old is not None
        assert wait_until(lambda: "late" not in {tool.name for tool in client.list_tools()})
        assert not client.call_tool("echo", {"text": "x"}, timeout=PATIENCE).is_error
        old.stop()


class TestAutoscaling:
    def test_calls_add_replicas_and_their_absence_removes_them(
        self, place: Place, demo_server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = "gaia.mcp.cluster"
        monkeypatch.setattr(f"{module}.autoscaling._BUSY_SECONDS", 0.0)
        monkeypatch.setattr(f"{module}.autoscaling._IDLE_SECONDS", 0.0)
        monkeypatch.setattr(f"{module}.replicated_server._SECONDS_BETWEEN_LOOKS", 0.01)
        client = connected(place(demo_server, Replicas(min=1, max=2, target_in_flight=2)), 1)
        futures = [client.submit_tool("sleep", {"seconds": PATIENCE}) for _ in range(4)]
        assert wait_until(lambda: ready(client) == 2)
        for future in futures:
            future.cancel()
        assert wait_until(lambda: len(client.status.replicas) == 1)
        assert client.status.generation == 2, "it counts the starts of those that were removed, too"
        assert not client.call_tool("add", {"a": 1, "b": 2}).is_error


class TestPinned:
    def test_calls_stay_with_one_replica(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        with client.pinned() as first, client.pinned() as second:
            counts = [first.call_tool("counter")["structuredContent"]["value"] for _ in range(3)]
            assert counts == [1, 2, 3]
            assert second.call_tool("counter")["structuredContent"] == {"value": 1}
            assert first.placement is not None
        assert client.call_tool("counter")["structuredContent"]["value"] in (2, 4)
        with pytest.raises(NotConnected, match="closed"):
            first.call_tool("counter")

    def test_a_lost_replica_is_a_lost_session(
        self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]
    ) -> None:
        client = connected(place(demo_server))
        with client.pinned() as handle:
            under_way = handle.submit_tool("sleep", {"seconds": PATIENCE})
            (used,) = [link for link in engine.links if "call" in link.sent]
            old = used.lose()
            assert old is not None
            error = under_way.exception(PATIENCE)
            assert isinstance(error, SessionLost)
            assert error.delivery == "unknown"
            used.renew()
            assert wait_until(lambda: ready(client) == 2)
            assert handle.is_lost
            result = handle.call_tool("counter")
            assert (result["error_type"], result["delivery"]) == ("session_lost", "not_sent")
        assert not client.call_tool("counter").is_error
        old.stop()

    def test_a_server_that_was_started_again_has_forgotten(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = connected(place(demo_server))
        with client.pinned() as handle:
            assert handle.call_tool("crash")["error_type"] == "session_lost"
            assert wait_until(lambda: sum(one.generation for one in client.status.replicas) == 3)
            assert wait_until(lambda: ready(client) == 2)
            assert handle.call_tool("counter")["error_type"] == "session_lost"

    def test_one_replica_is_enough(self, place: Place, demo_server: dict[str, Any]) -> None:
        client = place(demo_server, 1)
        assert client.connect()
        with client.pinned() as handle:
            assert handle.call_tool("counter")["structuredContent"] == {"value": 1}

    def test_without_a_replica(self, place: Place, engine: LocalEngine, demo_server: dict[str, Any]) -> None:
        client = place(demo_server)
        with pytest.raises(NotConnected):
            client.pinned()
        connected(client)
        old = [link.lose() for link in engine.links]
        assert wait_until(lambda: client.state is ServerState.RESTARTING)
        with pytest.raises(ServerUnavailable):
            client.pinned()
        for host in old:
            assert host is not None
            host.stop()

    def test_a_local_server_has_no_replicas(self, demo_server: dict[str, Any]) -> None:
        with MCPClient.from_config("it", demo_server) as client, pytest.raises(NotOffered, match="placement"):
            client.pinned()
