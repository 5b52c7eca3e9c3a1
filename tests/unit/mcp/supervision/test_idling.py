"""A server that nothing uses is stopped until the next call; a lazy one is started by the first."""

from __future__ import annotations

import pytest

from gaia.mcp.errors import ServerUnavailable, StartFailed
from gaia.mcp.protocol.eras import HandshakeEra, ServerProfile
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.context import RecyclingLimits
from gaia.mcp.supervision.events import GaveUp, Restarted, ServerState, StateChanged
from tests.fake_transport import PATIENCE, FakeChannel
from tests.supervised import FRAGILE, Supervised
from tests.unit.mcp.supervision.conftest import FORM, Person
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise
from tests.waiting import wait_until

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


def answered(server: Supervised, channel: FakeChannel) -> bool:
    number = len(channel.requests("tools/call")) + 1
    call = server.submit()
    channel.answer(channel.wait_for("tools/call", number), TEXT)
    return bool(call.result(PATIENCE) == TEXT)


class TestAnIdleServer:
    def test_is_stopped_and_started_by_the_next_call(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        server.pass_time(IDLE_STOP)
        server.wait_for_state(ServerState.EXITED)
        first.wait_until_closing()
        assert server.supervisor.condition.pid is None
        call = server.submit()
        second = server.transport.channel(2)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT
        assert server.supervisor.condition.last_error is None

    def test_is_one_that_had_no_call_for_the_whole_time(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        looked(server, IDLE_STOP - 1)
        assert answered(server, channel)
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
        second = server.transport.channel(2)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT

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
        call = lazy.submit()
        channel = lazy.transport.channel(1)
        channel.answer(channel.wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT
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
    call = server.submit()
    channel = server.transport.channel(1)
    channel.answer(channel.wait_for("tools/call"), TEXT)
    assert call.result(PATIENCE) == TEXT
