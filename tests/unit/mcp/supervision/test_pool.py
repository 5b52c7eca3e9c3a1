"""A server with replicas: ready while one is, with one catalog of tools, and each replica supervised for itself."""

from __future__ import annotations

import queue
import threading
from typing import Any

import msgspec
import pytest

from gaia.mcp.errors import MCPError, NotConnected, ServerCrashed, ServerUnavailable, SessionLost, StartFailed
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision import pool as pool_module
from gaia.mcp.supervision.events import ReplicaChanged, ResourceUpdated, Restarted, ServerState, StateChanged
from gaia.mcp.supervision.pool import Pool
from gaia.mcp.supervision.status import CallStatistics, ServerStatus
from tests.fake_transport import FakeChannel
from tests.interruption import Interruption, places
from tests.supervised import FRAGILE, Supervised
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]

READY = ServerState.READY
ECHO = {"name": "echo"}
OTHER_ECHO = {"name": "echo", "description": "another one"}


class Pooled:
    """A pool over one `FakeTransport`, and the hooks of its server."""

    def __init__(self, server: Supervised, replicas: int) -> None:
        self.server = server
        self.pool = Pool(msgspec.structs.replace(server.context, replicas=replicas))
        server.supervisor = server.caller.supervisor = self.pool  # type: ignore[assignment]

    def started(self) -> Pooled:
        assert self.pool.start(), self.pool.condition.last_error
        self.wait_until_ready(len(self.pool.replicas))
        return self

    def wait_until_ready(self, count: int) -> None:
        assert wait_until(lambda: [one.state for one in self.status.replicas] == [READY] * count), self.status
        assert wait_until(lambda: sum(one.queue.ready is not None for one in self.pool.replicas.values()) == count)

    @property
    def status(self) -> ServerStatus:
        return self.pool.condition.status(CallStatistics(), 0)

    def channel(self, replica: int) -> FakeChannel:
        """The channel of the present process of the replica."""
        pid = next(one.pid for one in self.status.replicas if one.replica == replica)
        assert pid is not None
        return self.server.transport.channel(pid - 1000)

    def changes(self, replica: int) -> list[ServerState]:
        events = list(self.server.events)
        return [event.new for event in events if isinstance(event, ReplicaChanged) and event.replica == replica]

    @property
    def states(self) -> list[ServerState]:
        return self.server.states


@pytest.fixture
def make(supervise: Supervise) -> Any:
    def pooled(replicas: int = 2, **settings: Any) -> Pooled:
        return Pooled(supervise(**settings), replicas)

    return pooled


@pytest.fixture
def pooled(make: Any) -> Pooled:
    found: Pooled = make().started()
    return found


class TestStarting:
    def test_it_is_ready_with_its_first_replica_and_one_that_starts_delays_no_call(self, make: Any) -> None:
        pooled = make()
        answers = pooled.server.transport.answers
        initialize = answers.pop("initialize")
        starting = pooled.server.in_background(pooled.pool.start)
        channels = [pooled.server.transport.channel(number) for number in (1, 2)]
        request = channels[1].wait_for("initialize")
        channels[1].answer(request, initialize(request))
        assert starting.result(PATIENCE)
        assert pooled.states == [ServerState.STARTING, READY]
        calls = [pooled.server.submit() for _ in range(3)]
        for nth, call in enumerate(calls, 1):
            channels[1].answer(channels[1].wait_for("tools/call", nth), {"content": nth})
            assert call.result(PATIENCE) == {"content": nth}

    def test_it_fails_when_all_have_failed_and_nothing_is_left(self, make: Any) -> None:
        pooled = make()
        pooled.server.transport.start_errors.extend([StartFailed("no such file"), StartFailed("no such file")])
        assert not pooled.pool.start()
        assert pooled.status.last_error == "no such file"
        assert pooled.states == [ServerState.STARTING, ServerState.FAILED]
        assert not pooled.pool.is_running
        assert isinstance(pooled.server.submit().exception(PATIENCE), ServerUnavailable)

    def test_one_that_cannot_be_started_is_tried_again_by_itself(self, make: Any) -> None:
        pooled = make()
        pooled.server.transport.start_errors.append(StartFailed("busy"))
        assert pooled.pool.start()
        assert wait_until(lambda: ServerState.FAILED in pooled.changes(1) + pooled.changes(2))
        pooled.server.pass_time(0.0 + 0.5)
        pooled.wait_until_ready(2)
        assert pooled.states == [ServerState.STARTING, READY]

    def test_with_keep_trying_a_failure_is_not_the_end(self, make: Any) -> None:
        pooled = make(1)
        pooled.server.transport.start_errors.append(StartFailed("busy"))
        assert not pooled.pool.start(keep_trying=True)
        pooled.server.pass_time(0.5)
        pooled.wait_until_ready(1)
        assert pooled.states == [ServerState.STARTING, ServerState.FAILED, ServerState.STARTING, READY]


class TestLosing:
    def test_a_lost_one_is_left_out_until_it_is_back(self, pooled: Pooled) -> None:
        lost = pooled.channel(1)
        unsafe, safe = pooled.server.submit(), pooled.server.submit(repeatable=True)
        lost.wait_for("tools/call")
        pooled.channel(2).wait_for("tools/call")
        late = pooled.server.submit(repeatable=True)
        lost.wait_for("tools/call", 2)
        lost.end(exit_code=1)
        assert isinstance(unsafe.exception(PATIENCE), ServerCrashed)
        other = pooled.channel(2)
        other.answer(other.wait_for("tools/call", 2), {"content": "repeated"})
        assert late.result(PATIENCE) == {"content": "repeated"}
        other.answer(other.wait_for("tools/call"), {})
        assert safe.result(PATIENCE) == {}
        assert wait_until(lambda: pooled.changes(1) == [ServerState.STARTING, READY, ServerState.RESTARTING, READY])
        assert pooled.states == [ServerState.STARTING, READY], "the server was ready all the time"
        assert [event for event in pooled.server.events if isinstance(event, Restarted)] == []
        assert (pooled.status.restarts, pooled.status.replicas[0].restarts) == (0, 1)

    def test_when_all_are_lost_calls_wait_together_for_the_first(self, make: Any) -> None:
        pooled = make(2, policy=FRAGILE).started()
        for number in (1, 2):
            pooled.channel(number).end_slowly(exit_code=1)
        assert wait_until(lambda: pooled.pool.state is ServerState.RESTARTING)
        waiting = [pooled.server.submit() for _ in range(3)]
        assert wait_until(lambda: pooled.status.queued == 3)
        pooled.server.transport.channel(2).let_close()
        fresh = pooled.server.transport.channel(3)
        for nth, call in enumerate(waiting, 1):
            fresh.answer(fresh.wait_for("tools/call", nth), {"content": nth})
            assert call.result(PATIENCE) == {"content": nth}
        restarted = pooled.server.wait_for(Restarted)
        assert restarted.reason == "all of its replicas were lost"
        assert pooled.status.restarts == 1

    def test_a_hung_one_gets_no_more_calls(self, make: Any) -> None:
        pooled = make(2, health_interval=100.0).started()
        hung, well = pooled.channel(1), pooled.channel(2)
        hung.take_over("ping")
        hung.take_over("tools/list")
        pooled.server.pass_time(100.0)
        hung.wait_for("ping")
        pooled.server.pass_time(10.0)
        hung.wait_for("tools/list", 2)
        pooled.server.pass_time(10.0)
        assert wait_until(lambda: ServerState.RESTARTING in pooled.changes(1))
        assert pooled.states == [ServerState.STARTING, READY]
        assert well.closed_with_grace is None


class TestTools:
    def test_when_one_announces_a_change_the_others_are_asked_too(self, pooled: Pooled) -> None:
        listed = len(pooled.server.listings)
        for number in (1, 2):
            pooled.channel(number)._answers["tools/list"] = lambda _: {"tools": [OTHER_ECHO]}
        pooled.channel(1).notify("notifications/tools/list_changed", {})
        assert wait_until(lambda: len(pooled.channel(2).requests("tools/list")) == 2)
        assert wait_until(lambda: len(pooled.server.listings) >= listed + 2)
        assert pooled.server.listings[-1] == [OTHER_ECHO]
        assert all(not one.queue.differing for one in pooled.pool.replicas.values())

    def test_a_replica_that_defines_a_tool_otherwise_gets_no_calls_of_it(self, pooled: Pooled) -> None:
        pooled.channel(1)._answers["tools/list"] = lambda _: {"tools": [OTHER_ECHO]}
        pooled.channel(1).notify("notifications/tools/list_changed", {})
        assert wait_until(lambda: pooled.server.listings[-1] == [OTHER_ECHO])
        assert wait_until(lambda: len(pooled.channel(2).requests("tools/list")) == 2)
        assert wait_until(lambda: "echo" in pooled.pool.replicas[2].queue.differing)
        for nth in (1, 2, 3):
            pooled.server.submit()
            pooled.channel(1).wait_for("tools/call", nth)
        assert pooled.channel(2).requests("tools/call") == []

    def test_the_client_goes_by_another_replica_when_the_one_it_went_by_is_lost(self, pooled: Pooled) -> None:
        pooled.channel(1)._answers["tools/list"] = lambda _: {"tools": [OTHER_ECHO]}
        pooled.channel(1).notify("notifications/tools/list_changed", {})
        assert wait_until(lambda: "echo" in pooled.pool.replicas[2].queue.differing)
        waiting = pooled.server.submit()
        pooled.channel(1).wait_for("tools/call")
        pooled.channel(1).end_slowly(exit_code=1)
        assert isinstance(waiting.exception(PATIENCE), ServerCrashed)
        assert wait_until(lambda: pooled.server.listings[-1][0] == ECHO)
        pooled.server.submit()
        assert pooled.channel(2).wait_for("tools/call")
        pooled.server.transport.channel(1).let_close()
        pooled.server.transport.channel(2).let_close()

    def test_a_handle_reaches_no_tool_that_its_replica_defines_otherwise(self, pooled: Pooled) -> None:
        pin = pooled.pool.replicas[2].supervisor.pin()
        pooled.pool.replicas[2].queue.differing = frozenset({"echo"})
        call = Call(pin.next_id(), "tools/call", {}, 0.0, 30.0, tool="echo", route=pin)
        pin.submit(call)
        assert isinstance(call.error, MCPError)
        assert (call.error.error_type, call.error.delivery) == ("not_offered", "not_sent")
        assert "defines the tool 'echo' otherwise" in call.error.message


class TestScaling:
    def test_more_are_started_and_share_the_calls(self, pooled: Pooled) -> None:
        pooled.pool.scale(3)
        pooled.wait_until_ready(3)
        for _ in range(3):
            pooled.server.submit()
        assert all(pooled.channel(number).wait_for("tools/call") for number in (1, 2, 3))
        assert pooled.states == [ServerState.STARTING, READY]

    def test_one_that_is_removed_finishes_its_calls_and_gets_no_new_ones(self, pooled: Pooled) -> None:
        first, second = pooled.channel(1), pooled.channel(2)
        calls = [pooled.server.submit() for _ in range(2)]
        request = second.wait_for("tools/call")
        pooled.pool.scale(1)
        assert [one.replica for one in pooled.status.replicas] == [1]
        pooled.server.submit()
        first.wait_for("tools/call", 2)
        assert pooled.status.in_flight == 3
        second.answer(request, {"content": "late"})
        assert any(call.result(PATIENCE) == {"content": "late"} for call in calls if wait_until(call.done, 0.2))
        pooled.server.clock.advance(0.1)
        second.wait_until_closing()
        assert wait_until(lambda: pooled.changes(2)[-1] is ServerState.CLOSED)
        assert wait_until(lambda: pooled.pool.leaving == ())
        assert pooled.status.generation == 2

    def test_one_with_an_open_handle_is_removed_last_and_drained_when_that_is_closed(self, pooled: Pooled) -> None:
        pin, other = pooled.pool.pin(), pooled.pool.pin()
        assert {pin.ready.channel, other.ready.channel} == {pooled.channel(1), pooled.channel(2)}, "evenly"
        handled = next(number for number in (1, 2) if pooled.channel(number) is pin.ready.channel)
        other.close()
        channel = pooled.channel(handled)
        pooled.pool.scale(1)
        assert [one.replica for one in pooled.status.replicas] == [handled]
        pooled.server.submit()
        pooled.pool.replicas[handled].supervisor.request_stop(30.0)
        channel.answer(channel.wait_for("tools/call"), {})
        call = Call(pin.next_id(), "tools/call", {}, 0.0, 30.0, route=pin)
        pin.submit(call)
        channel.answer(channel.wait_for("tools/call", 2), {"content": "late"})
        assert call.result == {"content": "late"}
        assert channel.closed_with_grace is None
        pin.close()
        pooled.server.clock.advance(0.1)
        channel.wait_until_closing()

    def test_a_safe_call_of_a_removed_one_goes_to_another_when_the_time_to_drain_is_over(self, pooled: Pooled) -> None:
        calls = [pooled.server.submit(repeatable=True, timeout=300.0) for _ in range(2)]
        second = pooled.channel(2)
        second.wait_for("tools/call")
        pooled.pool.scale(1)
        assert wait_until(lambda: pooled.changes(2)[-1] is ServerState.CLOSED)
        pooled.server.clock.advance(30.0)
        first = pooled.channel(1)
        for nth in (1, 2):
            first.answer(first.wait_for("tools/call", nth), {"content": nth})
        assert sorted(call.result(PATIENCE)["content"] for call in calls) == [1, 2]

    def test_a_report_holds_up_no_other_thread(self, pooled: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
        """An application's hooks may wait for another thread that uses the pool."""
        happened, is_held, go_on = pooled.server.happened, threading.Event(), threading.Event()

        def slowly(event: Any) -> None:
            if isinstance(event, ReplicaChanged) and not is_held.is_set():
                is_held.set()
                go_on.wait(PATIENCE)
            happened(event)

        monkeypatch.setattr(pooled.server, "happened", slowly)
        pooled.pool.scale(3)
        assert is_held.wait(PATIENCE)
        scaling = pooled.server.in_background(lambda: pooled.pool.scale(4))
        try:
            scaling.result(5.0)
        finally:
            go_on.set()
        pooled.wait_until_ready(4)
        assert wait_until(lambda: pooled.changes(3)[-1] is READY and pooled.changes(4)[-1] is READY)

    def test_up_and_down_at_once_ends_with_what_was_asked_last(self, pooled: Pooled) -> None:
        def scale(*numbers: int) -> None:
            for number in numbers:
                pooled.pool.scale(number)

        both = [pooled.server.in_background(lambda: scale(*range(1, 6), 1)) for _ in range(2)]
        for one in both:
            one.result(PATIENCE)
        pooled.pool.scale(2)
        pooled.wait_until_ready(2)
        assert wait_until(lambda: pooled.pool.leaving == ())
        assert len(pooled.pool.replicas) == 2

    def test_a_stop_within_it_leaves_no_replica(self, make: Any) -> None:
        """As when a signal handler disconnects in the middle of a start."""

        def interrupt(place: int) -> Interruption:
            pooled = make().started()

            def scale() -> None:
                pooled.pool.scale(4)
                if interruption.happened:
                    assert not pooled.pool.is_running, interruption.where
                    transport = pooled.server.transport
                    channels = [transport.channel(number) for number in range(1, transport.starts + 1)]
                    assert all(one.closed_with_grace is not None for one in channels), interruption.where
                pooled.pool.stop()

            interruption = Interruption(scale, pooled.pool.stop, place, files=(pool_module.__file__,))
            return interruption

        for interruption in places(interrupt):
            assert interruption.error is None, (interruption.where, interruption.error)

    def test_numbers_are_not_used_again(self, pooled: Pooled) -> None:
        pooled.pool.scale(1)
        pooled.pool.scale(2)
        assert [one.replica for one in pooled.status.replicas] == [1, 3]


class TestHandles:
    def test_one_stays_with_its_replica_and_is_lost_with_it(self, pooled: Pooled) -> None:
        pin = pooled.pool.pin()
        channel = pin.ready.channel
        assert isinstance(channel, FakeChannel)
        call = Call(pin.next_id(), "tools/call", {}, 0.0, 30.0, repeatable=True, route=pin)
        pin.submit(call)
        channel.wait_for("tools/call")
        channel.end(exit_code=1)
        assert wait_until(lambda: isinstance(call.error, SessionLost))
        assert pin.is_lost

    def test_without_a_ready_replica_there_is_none(self, make: Any) -> None:
        with pytest.raises(NotConnected):
            make().pool.pin()


class TestConfiguration:
    def test_one_replica_tries_another_configuration_first(self, pooled: Pooled) -> None:
        context = msgspec.structs.replace(pooled.pool._context, replicas=3, max_pending=7)
        assert pooled.pool.reconfigure_now(context, 0.0) == [None]
        pooled.wait_until_ready(3)
        assert pooled.server.adoptions == [context]
        assert pooled.status.recyclings == 2
        assert pooled.states == [ServerState.STARTING, READY]

    def test_if_it_fails_there_nothing_changes(self, pooled: Pooled) -> None:
        pooled.server.transport.start_errors.append(StartFailed("no such file"))
        context = msgspec.structs.replace(pooled.pool._context, replicas=3)
        (error,) = pooled.pool.reconfigure_now(context, 0.0)
        assert error is not None
        assert "no such file" in error.message
        assert pooled.server.adoptions == []
        assert len(pooled.status.replicas) == 2
        assert pooled.server.transport.starts == 2

    def test_if_it_fails_at_a_later_one_that_is_tried_again_with_it(
        self, pooled: Pooled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        adopted = pooled.server.adopted

        def fail_next(context: Any) -> None:
            adopted(context)
            pooled.server.transport.start_errors.extend([StartFailed("busy"), StartFailed("busy")])

        monkeypatch.setattr(pooled.server, "adopted", fail_next)
        old = pooled.channel(2)
        context = msgspec.structs.replace(pooled.pool._context)
        assert pooled.pool.reconfigure_now(context, 0.0) == [None], "it is in force"
        old.wait_until_closing()
        assert [one.replica for one in pooled.status.replicas] == [1, 3]
        assert wait_until(lambda: ServerState.FAILED in pooled.changes(3))
        assert pooled.status.replicas[1].last_error == "busy"
        pooled.server.pass_time(0.5)
        pooled.wait_until_ready(2)

    def test_all_are_replaced_one_after_the_other(self, pooled: Pooled) -> None:
        assert pooled.pool.replace_now(0.0)
        assert pooled.server.transport.starts == 4
        assert pooled.states == [ServerState.STARTING, READY]


class TestRest:
    def test_a_lazy_one_starts_as_many_as_are_used(self, make: Any) -> None:
        pooled = make(3, lazy=True, known=(None, [ECHO]))
        assert pooled.pool.start()
        assert pooled.pool.state is ServerState.EXITED
        assert wait_until(lambda: {one.state for one in pooled.status.replicas} == {ServerState.EXITED})
        first = pooled.server.submit()
        channel = pooled.server.transport.channel(1)
        channel.wait_for("tools/call")
        assert pooled.server.transport.starts == 1
        pooled.server.submit()
        assert pooled.server.transport.channel(2)
        assert wait_until(lambda: sum(one.state is READY for one in pooled.status.replicas) == 2)
        channel.answer(channel.wait_for("tools/call"), {})
        first.result(PATIENCE)
        pooled.server.submit()
        assert pooled.server.transport.starts == 2


def test_subscriptions_are_those_of_all_replicas(pooled: Pooled) -> None:
    pooled.server.subscriptions.add_resource("x://a")
    pooled.pool.subscriptions_changed()
    for number in (1, 2):
        assert pooled.channel(number).wait_for("resources/subscribe")["params"] == {"uri": "x://a"}
    pooled.channel(2).notify("notifications/resources/updated", {"uri": "x://a"})
    assert pooled.server.wait_for(ResourceUpdated).uri == "x://a"
    pooled.server.subscriptions.remove_resource("x://a")
    pooled.channel(2).notify("notifications/resources/updated", {"uri": "x://a"})
    pooled.channel(2).notify("notifications/resources/updated", {"uri": "x://b"})
    pooled.pool.stop()
    assert [event for event in pooled.server.events if isinstance(event, ResourceUpdated)] == [
        ResourceUpdated("fake", "x://a")
    ]


def test_it_is_closed_once_with_all_replicas(pooled: Pooled) -> None:
    call = pooled.server.submit()
    pooled.channel(1).wait_for("tools/call")
    channels = [pooled.channel(number) for number in (1, 2)]
    pooled.pool.stop()
    assert call.exception(PATIENCE) is not None
    assert all(channel.closed_with_grace is not None for channel in channels)
    closed = [event for event in pooled.server.events if isinstance(event, StateChanged)]
    assert [event.new for event in closed] == [ServerState.STARTING, READY, ServerState.CLOSED]
    assert isinstance(pooled.server.submit.__self__, Supervised)
    pooled.pool.scale(5)
    assert pooled.pool.replicas.keys() == {1, 2}


def test_one_that_is_dropped_ends_and_then_releases(pooled: Pooled) -> None:
    released: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert pooled.pool.abandon(lambda: released.put(threading.current_thread().name))
    assert released.get(timeout=PATIENCE) == "mcp-fake-supervisor"
    assert wait_until(lambda: not pooled.pool.is_running)
    assert not pooled.pool.abandon(lambda: None)
