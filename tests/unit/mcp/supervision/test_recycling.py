"""When a server that works is replaced, or stopped because it is idle. Time and chance are numbers."""

from __future__ import annotations

import logging
import queue
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import MCPError, ServerUnavailable, StartFailed
from gaia.mcp.protocol.eras import HandshakeEra, ServerProfile
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import ConnectionState, CountedConnection
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.context import RecyclingLimits
from gaia.mcp.supervision.events import GaveUp, Restarted, ServerState, StateChanged
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.recycling import Recycling
from gaia.mcp.supervision.status import ServerStatus
from gaia.runtime.event_loop import EventLoop
from gaia.testing import FakeClock
from tests.fake_transport import PATIENCE, FakeTransport
from tests.supervised import FRAGILE, Supervised
from tests.tracing import Metering, Tracing
from tests.unit.mcp.supervision.conftest import FORM, Person
from tests.waiting import wait_until

Supervise = Callable[..., Supervised]

MEGABYTE = 1024**2


def context_of(limits: RecyclingLimits, clock: FakeClock, rng: random.Random) -> Any:
    return SimpleNamespace(recycling=limits, clock=clock, rng=rng, policy=RestartPolicy())


class Watched:
    """A process that is watched, and what is said of it."""

    def __init__(self, clock: FakeClock, chance: float = 0.0, **limits: Any) -> None:
        self.clock = clock
        self.loop = EventLoop(clock)
        self.due: list[str] = []
        self.memory: Any = Mock(return_value=10 * MEGABYTE)
        rng = random.Random()
        rng.random = lambda: chance  # type: ignore[method-assign]
        self.recycling = Recycling(context_of(RecyclingLimits(**limits), clock, rng), self.loop, self.due.append)
        self.begin()

    def begin(self) -> None:
        connection = CountedConnection(
            "test", 1, self.clock, max_pending=9, on_notification=lambda _: None, on_ended=lambda _: None
        )
        connection.channel = Mock()
        connection.move_to(ConnectionState.READY)
        self.connection = connection
        self.recycling.begin(SimpleNamespace(connection=connection, memory=self.memory))  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the timers that are due then run, each at its moment."""
        end = self.clock.monotonic() + seconds
        while (deadline := self.loop.timers.next_deadline()) is not None and deadline <= end:
            self.clock.advance(deadline - self.clock.monotonic())
            for task in self.loop.timers.due(self.clock.monotonic()):
                task()
        self.clock.advance(end - self.clock.monotonic())

    def call(self) -> None:
        call = Call(1, "tools/call", {}, self.clock.monotonic(), 30.0)
        assert self.connection.submit(call)
        call.finish({})
        for task in self.loop.drain():
            task()


class TestLifetime:
    def test_it_is_due_at_the_end_of_its_lifetime(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_lifetime=3600.0)
        watched.pass_time(3599.0)
        assert watched.due == []
        watched.pass_time(1.0)
        assert watched.due == ["max_lifetime"]

    def test_that_is_said_again_until_a_fresh_process_is_there(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_lifetime=3600.0, max_memory=20 * MEGABYTE)
        watched.pass_time(3600.0)
        watched.memory.return_value = 50 * MEGABYTE
        watched.pass_time(10.0)
        assert watched.due == ["max_lifetime"] * 3
        watched.begin()
        watched.pass_time(29.9)
        assert watched.due == ["max_lifetime"] * 3

    def test_chance_makes_it_shorter_and_never_longer(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, chance=0.999999, max_lifetime=100.0)
        watched.pass_time(90.0)
        assert watched.due == []
        watched.pass_time(0.1)
        assert watched.due == ["max_lifetime"]

    def test_servers_that_were_started_together_are_not_due_together(self, fake_clock: FakeClock) -> None:
        began, chance = fake_clock.monotonic(), random.Random(7)
        ends = set()
        for _ in range(200):
            loop = EventLoop(fake_clock)
            limits = RecyclingLimits(max_lifetime=3600.0)
            recycling = Recycling(context_of(limits, fake_clock, chance), loop, Mock())
            recycling.begin(Mock())
            ends.add(round((loop.timers.next_deadline() or 0.0) - began))
        assert len(ends) > 100
        assert min(ends) >= 3240
        assert max(ends) <= 3600


class TestCalls:
    def test_calls_of_a_process_that_was_lost_mean_nothing(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_calls=1)
        watched.recycling.end()
        watched.call()
        assert watched.due == []


class TestMemory:
    def test_it_is_measured_every_few_seconds_and_first_when_it_has_settled(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_memory=100 * MEGABYTE)
        watched.memory.return_value = 200 * MEGABYTE
        watched.pass_time(29.9)
        assert watched.memory.call_count == 0
        watched.memory.return_value = MEGABYTE
        watched.pass_time(20.2)
        assert watched.memory.call_count == 5

    @pytest.mark.parametrize("answer", [None, OSError("no /proc")])
    def test_what_cannot_be_measured_goes_on(
        self, fake_clock: FakeClock, answer: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        watched = Watched(fake_clock, max_memory=100 * MEGABYTE, max_lifetime=100.0)
        watched.memory.side_effect = [answer] * 50
        watched.pass_time(100.0)
        assert watched.due == ["max_lifetime"]
        assert ("memory_unknown" in caplog.text) == (answer is not None)


def test_without_limits_no_timer_is_set(fake_clock: FakeClock) -> None:
    assert Watched(fake_clock).loop.timers.next_deadline() is None


def test_a_process_that_ended_is_not_due(fake_clock: FakeClock) -> None:
    watched = Watched(fake_clock, max_lifetime=100.0, max_memory=100 * MEGABYTE)
    watched.recycling.end()
    assert watched.loop.timers.next_deadline() is None
    watched.pass_time(1000.0)
    assert watched.due == []


# What becomes of servers, and what is seen of it.


def status(server: Supervised) -> ServerStatus:
    return server.supervisor.condition.status(server.statistics, 0)


def replace(server: Supervised) -> queue.SimpleQueue[MCPError | None]:
    outcomes: queue.SimpleQueue[MCPError | None] = queue.SimpleQueue()
    server.replace(30.0, outcomes.put)
    return outcomes


@pytest.fixture
def limited(supervise: Supervise) -> Callable[..., Supervised]:
    """A server with these limits that is ready. Its lifetime is not a matter of chance."""

    def make(policy: RestartPolicy | None = None, **limits: Any) -> Supervised:
        server = supervise(
            policy=policy or RestartPolicy(jitter=0.0), recycling=RecyclingLimits(**limits), drain_timeout=20.0
        )
        server.context.rng.random = lambda: 0.0  # type: ignore[method-assign]
        return server.started()

    return make


class TestServers:
    def test_a_server_is_replaced_at_the_end_of_its_lifetime(
        self, limited: Callable[..., Supervised], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        server = limited(max_lifetime=3600.0)
        server.pass_time(3600.0)
        assert server.wait_for(Restarted).reason == "recycled: max_lifetime"
        server.transport.channel(1).wait_until_closing()
        assert (status(server).recyclings, status(server).last_recycling) == (1, "recycled: max_lifetime")
        assert (status(server).state, status(server).restarts, status(server).generation) == (ServerState.READY, 0, 2)
        assert wait_until(lambda: "recycled: max_lifetime" in caplog.text)
        server.pass_time(3600.0)
        assert server.wait_for(Restarted).generation == 3

    def test_a_server_is_replaced_after_its_calls(self, limited: Callable[..., Supervised]) -> None:
        server = limited(max_calls=2)
        assert server.is_answered_by(server.transport.starts)
        server.settle()
        assert server.transport.starts == 1
        assert server.is_answered_by(server.transport.starts)
        assert server.wait_for(Restarted).reason == "recycled: max_calls"
        server.transport.channel(1).wait_until_closing()

    def test_a_call_in_flight_has_the_drain_timeout(self, limited: Callable[..., Supervised]) -> None:
        server = limited(max_calls=1)
        call = server.submit(timeout=100.0)
        assert server.wait_for(Restarted).reason == "recycled: max_calls"
        server.settle()
        server.clock.advance(20.0)
        server.transport.channel(1).wait_until_closing()
        assert "20 s" in str(call.exception(PATIENCE))

    def test_a_server_is_replaced_when_it_has_grown_beyond_the_limit(self, limited: Callable[..., Supervised]) -> None:
        server = limited(max_memory=100 * MEGABYTE)
        server.transport.channel(1).memory_bytes = 100 * MEGABYTE
        server.pass_time(30.0)
        server.settle()
        assert server.transport.starts == 1
        server.transport.channel(1).memory_bytes = 100 * MEGABYTE + 1
        server.pass_time(5.0)
        assert server.wait_for(Restarted).reason == "recycled: max_memory"

    def test_a_fresh_process_that_fails_is_tried_again_after_a_backoff(
        self, limited: Callable[..., Supervised], caplog: pytest.LogCaptureFixture
    ) -> None:
        server = limited(max_lifetime=3600.0)
        server.transport.start_errors.append(StartFailed("no memory"))
        server.pass_time(3600.0)
        assert wait_until(lambda: "server_not_replaced" in caplog.text)
        server.settle()
        assert status(server).state is ServerState.READY
        assert status(server).last_error == "no fresh process could take its place: no memory"
        server.pass_time(0.5)
        assert server.wait_for(Restarted).reason == "recycled: max_lifetime"

    def test_a_server_that_was_restarted_has_its_whole_lifetime(self, limited: Callable[..., Supervised]) -> None:
        server = limited(max_lifetime=100.0)
        server.clock.advance(60.0)
        server.settle()
        server.transport.channel(1).end(exit_code=1)
        server.wait_for(Restarted)
        server.clock.wait_for_waiter(server.clock.monotonic() + 100.0)
        server.pass_time(100.0)
        assert server.wait_for(Restarted).reason == "recycled: max_lifetime"

    def test_a_server_on_trial_is_replaced_when_it_has_passed_it(self, limited: Callable[..., Supervised]) -> None:
        policy = RestartPolicy(jitter=0.0, max_restarts=1, stable_after=30.0, cooldown=60.0)
        server = limited(policy, max_lifetime=10.0)
        server.transport.channel(1).end(exit_code=1)
        server.wait_for(Restarted)
        server.transport.channel(2).end(exit_code=1)
        server.wait_for_state(ServerState.FAILED)
        server.pass_time(60.0)
        server.wait_for_state(ServerState.READY)
        began = server.clock.monotonic()
        while status(server).recyclings == 0:
            deadlines = [one for one in server.clock.deadlines() if one is not None]
            assert server.clock.monotonic() - began < 60.0
            server.clock.advance(max(0.0, min(deadlines, default=server.clock.monotonic()) - server.clock.monotonic()))
            server.settle()
        assert status(server).last_recycling == "recycled: max_lifetime"
        assert 30.0 <= server.clock.monotonic() - began <= 36.0

    def test_one_that_is_stopped_is_not_replaced(self, limited: Callable[..., Supervised]) -> None:
        server = limited(max_lifetime=100.0)
        server.supervisor.stop()
        server.clock.advance(1000.0)
        assert server.transport.starts == 1


class TestOnRequest:
    def test_two_at_once_have_one_fresh_process(self, server: Supervised) -> None:
        del server.transport.answers["initialize"]
        first, second = replace(server), replace(server)
        channel = server.transport.channel(2)
        channel.answer(channel.wait_for("initialize"), {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert first.get(timeout=PATIENCE) is None
        assert second.get(timeout=PATIENCE) is None
        assert server.transport.starts == 2
        assert status(server).recyclings == 1

    def test_a_further_one_does_not_wait_for_the_backoff(self, server: Supervised) -> None:
        server.transport.start_errors.extend(StartFailed("no memory") for _ in range(4))
        for _ in range(4):
            assert replace(server).get(timeout=PATIENCE) is not None
        assert replace(server).get(timeout=PATIENCE) is None

    def test_it_does_not_wait_for_the_backoff_of_a_server_that_has_reached_a_limit(
        self, limited: Callable[..., Supervised]
    ) -> None:
        server = limited(max_lifetime=3600.0)
        server.transport.start_errors.extend(StartFailed("no memory") for _ in range(2))
        server.pass_time(3600.0)
        assert wait_until(lambda: status(server).last_error is not None)
        error = replace(server).get(timeout=PATIENCE)
        assert error is not None
        assert error.message == "no memory"
        assert replace(server).get(timeout=PATIENCE) is None

    def test_the_thread_that_waits_is_told(self, server: Supervised) -> None:
        assert server.supervisor.replace_now(5.0)
        server.transport.start_errors.append(StartFailed("no memory"))
        assert not server.supervisor.replace_now(5.0)
        server.supervisor.stop()
        assert not server.supervisor.replace_now(5.0)


class TestSeen:
    def test_as_a_span_and_a_count(self, tracing: Tracing, metering: Metering, server: Supervised) -> None:
        assert server.supervisor.replace_now(5.0)
        server.transport.start_errors.append(StartFailed("no memory"))
        assert not server.supervisor.replace_now(5.0)
        done, failed = tracing.wait_for("gaia.mcp.recycle fake", 2)
        attributes = dict(done.attributes or {})
        assert attributes["gaia.mcp.reason"] == "requested"
        assert (attributes["gaia.mcp.generation"], attributes["gaia.mcp.process.pid"]) == (2, 1002)
        assert done.status.is_unset
        assert failed.status.description == "no memory"
        assert dict(failed.attributes or {})["error.type"] == "not_replaced"
        (point,) = metering.points("gaia.mcp.server.recyclings")
        assert dict(point.attributes or {}) == {"gaia.mcp.server.name": "fake", "gaia.mcp.reason": "requested"}


def test_there_is_none_by_default() -> None:
    assert RecyclingLimits() == RecyclingLimits(max_lifetime=None, max_calls=None, max_memory=None)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_lifetime": 0}, "max_lifetime: must be a number of seconds above 0"),
        ({"max_lifetime": float("nan")}, "max_lifetime: must be a number of seconds above 0"),
        ({"max_calls": 0}, "max_calls: must be a whole number from 1 upwards, got 0"),
        ({"max_calls": 1.5}, "max_calls: must be a whole number from 1 upwards, got 1.5"),
        ({"max_calls": True}, "max_calls: must be a whole number from 1 upwards, got True"),
        ({"max_memory": "512M"}, "max_memory: must be a whole number from 1 upwards, got '512M'"),
        ({"max_memory": 16 * 1024**2 - 1}, "max_memory: must be at least 16M"),
    ],
)
def test_what_cannot_be_used_is_refused(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RecyclingLimits(**limits)


def test_a_client_takes_them() -> None:
    client = MCPClient("fake", FakeTransport(), recycling=RecyclingLimits(max_calls=5), drain_timeout=2.0)
    assert client._engine.options.recycling.max_calls == 5
    with pytest.raises(ValueError, match="drain_timeout"):
        MCPClient("fake", FakeTransport(), drain_timeout=0.0)


TEXT = {"content": "text"}
IDLE_STOP = 100.0
KNOWN = (ServerProfile("2025-11-25", {"name": "known"}, {"tools": {}}, HandshakeEra(), "Hello"), [{"name": "echo"}])


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return supervise(idle_stop=IDLE_STOP).started()


@pytest.fixture
def lazy(supervise: Supervise) -> Supervised:
    server = supervise(lazy=True, idle_stop=IDLE_STOP, known=KNOWN)
    assert server.supervisor.start()
    server.wait_for_state(ServerState.EXITED)
    return server


def looked(server: Supervised, seconds: float) -> None:
    """Let so much time pass, and wait until the supervisor has looked at what that means."""
    server.clock.advance(seconds)
    # What is late comes before timers that are due, so the second time all of these have fired.
    server.settle()
    server.settle()


class TestAnIdleServer:
    def test_is_stopped_and_started_by_the_next_call(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        server.pass_time(IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)
        first.wait_until_closing()
        assert server.supervisor.condition.pid is None
        call = server.submit()
        assert server.is_answered_by(2, call)
        assert server.supervisor.condition.last_error is None

    def test_is_one_that_had_no_call_for_the_whole_time(self, server: Supervised) -> None:
        looked(server, IDLE_STOP - 1)
        assert server.is_answered_by(1)
        looked(server, 1)
        assert server.supervisor.state is ServerState.READY
        looked(server, IDLE_STOP - 1)
        server.wait_for_state(ServerState.EXITED)

    def test_is_none_that_has_a_call(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit(timeout=10 * IDLE_STOP)
        request = channel.wait_for("tools/call")
        for _ in range(6):
            looked(server, IDLE_STOP / 2)
        assert server.supervisor.state is ServerState.READY
        channel.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT
        looked(server, IDLE_STOP / 4)
        assert server.supervisor.state is ServerState.READY
        looked(server, IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)

    def test_is_none_that_tells_of_a_resource(self, server: Supervised) -> None:
        server.subscriptions.add_resource("file:///a")
        for _ in range(3):
            looked(server, IDLE_STOP)
        assert server.supervisor.state is ServerState.READY
        server.subscriptions.remove_resource("file:///a")
        looked(server, IDLE_STOP)
        looked(server, IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)

    def test_is_none_that_waits_for_an_answer(self, supervise: Supervise, person: Person) -> None:
        server = supervise(idle_stop=IDLE_STOP, features=ClientFeatures(on_elicitation=person)).started()
        channel = server.transport.channel(1)
        channel.ask("elicitation/create", FORM)
        person.wait_until_asked()
        for _ in range(3):
            looked(server, IDLE_STOP)
        assert server.supervisor.state is ServerState.READY
        person.may_answer.set()
        channel.wait_for_response()
        looked(server, IDLE_STOP)
        looked(server, IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)

    def test_is_started_again_only_when_its_former_process_has_ended(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.hold_closing()
        server.pass_time(IDLE_STOP)
        first.wait_until_closing()
        call = server.submit()
        server.settle()
        assert server.transport.starts == 1
        first.let_close()
        assert server.is_answered_by(2, call)

    def test_goes_on_as_usual_after_a_crash(self, server: Supervised) -> None:
        server.transport.channel(1).end(exit_code=1)
        server.wait_for(Restarted)
        server.pass_time(IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)

    def test_is_not_recycled(self, supervise: Supervise) -> None:
        server = supervise(idle_stop=IDLE_STOP, recycling=RecyclingLimits(max_lifetime=2 * IDLE_STOP)).started()
        server.pass_time(IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)
        looked(server, 10 * IDLE_STOP)
        assert server.transport.starts == 1

    def test_can_be_disconnected(self, server: Supervised) -> None:
        server.pass_time(IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)
        server.supervisor.stop()
        assert server.supervisor.state is ServerState.CLOSED


class TestALazyServer:
    def test_is_known_before_it_is_started(self, lazy: Supervised) -> None:
        assert lazy.transport.starts == 0
        assert lazy.states == [ServerState.EXITED]
        assert lazy.listings == [KNOWN[1]]
        assert lazy.supervisor.condition.profile == KNOWN[0]

    def test_is_started_by_the_first_call_which_is_no_restart(self, lazy: Supervised) -> None:
        calls = [lazy.submit() for _ in range(3)]
        channel = lazy.transport.channel(1)
        for number in range(1, 4):
            channel.answer(channel.wait_for("tools/call", number), TEXT)
        assert [call.result(PATIENCE) for call in calls] == [TEXT] * 3
        assert lazy.supervisor.condition.restarts == 0
        assert lazy.states == [ServerState.EXITED, ServerState.STARTING, ServerState.READY]

    def test_is_started_at_once_if_it_is_not_known(self, supervise: Supervise) -> None:
        server = supervise(lazy=True).started()
        assert server.transport.starts == 1

    def test_that_cannot_be_started_is_tried_again_by_a_later_call(self, lazy: Supervised) -> None:
        lazy.transport.start_errors.append(StartFailed("no such file"))
        call = lazy.submit()
        with pytest.raises(ServerUnavailable, match="no such file"):
            call.result(PATIENCE)
        lazy.wait_for(GaveUp)
        lazy.clock.advance(1.0)
        lazy.wait_for(StateChanged, lambda event: event.new is ServerState.EXITED)
        assert lazy.transport.starts == 0
        assert lazy.submit() is not None
        assert lazy.transport.channel(1)

    def test_rests_after_a_crash(self, lazy: Supervised) -> None:
        assert lazy.is_answered_by(1)
        channel = lazy.transport.channel(1)
        channel.end(exit_code=1)
        lazy.wait_for(StateChanged, lambda event: event.new is ServerState.EXITED)
        assert lazy.transport.starts == 1

    def test_is_waked_up_without_a_call(self, lazy: Supervised) -> None:
        lazy.supervisor.wake()
        lazy.wait_for_state(ServerState.READY)
        lazy.supervisor.wake()
        lazy.settle()
        assert lazy.transport.starts == 1


def test_a_server_whose_circuit_was_open_is_on_trial_when_it_is_needed(supervise: Supervise) -> None:
    server = supervise(policy=FRAGILE, lazy=True, known=KNOWN)
    assert server.supervisor.start()
    server.wait_for_state(ServerState.EXITED)
    for number in range(1, 4):
        server.transport.start_errors.append(StartFailed(f"attempt {number}"))
        with pytest.raises(ServerUnavailable):
            server.submit().result(PATIENCE)
        assert wait_until(lambda: server.supervisor.condition.retry_in is not None)
        server.clock.advance(server.supervisor.condition.retry_in or 0.0)
        server.wait_for(StateChanged, lambda event: event.new is ServerState.EXITED)
    assert server.is_answered_by(1)
