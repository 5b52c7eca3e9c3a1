"""What follows when a server has ended, or could not be started: restart, refusal, exit."""

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from gaia.mcp.errors import (
    CallTimeout,
    ConfigError,
    MCPError,
    ServerCrashed,
    ServerUnavailable,
    StartFailed,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.events import GaveUp, Restarted, ServerState
from gaia.mcp.supervision.follow_up import Trial
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.runtime import log
from gaia.runtime.event_loop import EventLoop
from gaia.testing import FakeClock
from tests.supervised import FRAGILE, Supervised, open_circuit, restart
from tests.waiting import PATIENCE

Supervise = Callable[..., Supervised]

TEXT = {"content": [{"type": "text", "text": "hello"}]}


class TestKeepTrying:
    """A server that is down when it is first started is tried again by the same policy as one that crashed."""

    def start(self, server: Supervised, failures: int = 1) -> None:
        server.transport.start_errors.extend(StartFailed(f"down {number}") for number in range(1, failures + 1))
        assert not server.supervisor.start(keep_trying=True)
        assert server.supervisor.state is ServerState.FAILED

    def test_it_is_tried_again_and_becomes_ready(self, supervise: Supervise) -> None:
        server = supervise()
        self.start(server)
        server.pass_time(0.5)
        server.wait_for_state(ServerState.READY)
        assert server.states == [ServerState.STARTING, ServerState.FAILED, ServerState.STARTING, ServerState.READY]
        assert server.is_answered_by(server.transport.starts)

    def test_it_has_neither_restarts_nor_a_downtime(self, supervise: Supervise) -> None:
        server = supervise()
        self.start(server, failures=2)
        server.pass_time(0.5)
        server.pass_time(1.0)
        server.wait_for_state(ServerState.READY)
        server.settle()
        assert server.supervisor.condition.restarts == 0
        assert not [event for event in server.events if isinstance(event, Restarted)]

    def test_the_waits_grow_until_the_circuit_opens(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE)
        self.start(server, failures=5)
        for delay in (0.5, 1.0, 60.0, 120.0):
            assert server.supervisor.condition.retry_in == delay
            server.pass_time(delay)
            server.wait_for_state(ServerState.STARTING)
            server.settle()
        assert server.supervisor.condition.retry_in == 240.0
        waits = [event.retry_in for event in server.events if isinstance(event, GaveUp)]
        assert waits == [0.5, 1.0, 60.0, 120.0, 240.0]

    def test_meanwhile_calls_are_refused_with_the_cause_and_the_seconds_that_are_left(
        self, supervise: Supervise
    ) -> None:
        server = supervise(policy=FRAGILE)
        self.start(server, failures=3)
        server.pass_time(0.5)
        server.pass_time(1.0)
        server.wait_for(GaveUp, lambda event: event.retry_in == 60.0)
        server.clock.advance(17.5)
        with pytest.raises(ServerUnavailable, match=r"down 3; the next attempt is in 43 s$") as refused:
            server.call().result(PATIENCE)
        assert refused.value.retry_in == 42.5
        assert refused.value.delivery == "not_sent"
        assert server.supervisor.condition.status(server.statistics, 0).retry_in == 42.5

    def test_a_call_waits_for_an_attempt_under_way(self, supervise: Supervise) -> None:
        server = supervise()
        self.start(server)
        del server.transport.answers["initialize"]
        server.pass_time(0.5)
        channel = server.transport.channel(1)
        opening = channel.wait_for("initialize")
        call = server.submit()
        channel.answer(opening, {"protocolVersion": "2025-11-25", "capabilities": {}})
        channel.answer(channel.wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT

    def test_a_call_that_waited_for_an_attempt_that_fails_is_refused_and_was_not_sent(
        self, supervise: Supervise
    ) -> None:
        server = supervise()
        self.start(server)
        del server.transport.answers["initialize"]
        server.pass_time(0.5)
        channel = server.transport.channel(1)
        channel.wait_for("initialize")
        call = server.submit()
        channel.end(exit_code=3)
        with pytest.raises(ServerUnavailable, match=r"code 3.*next attempt is in 1 s") as refused:
            call.result(PATIENCE)
        assert refused.value.delivery == "not_sent"

    def test_after_an_open_circuit_it_is_on_trial(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE)
        self.start(server, failures=3)
        for delay in (0.5, 1.0, 60.0):
            server.pass_time(delay)
        server.wait_for_state(ServerState.READY)
        calls = [server.submit() for _ in range(3)]
        channel = server.transport.channel(1)
        channel.answer(channel.wait_for("tools/call"), TEXT)
        server.settle()
        for number in (2, 3):
            channel.answer(channel.wait_for("tools/call", number), TEXT)
        assert [call.result(PATIENCE) for call in calls] == [TEXT] * 3

    def test_stopping_ends_it(self, supervise: Supervise) -> None:
        server = supervise()
        self.start(server)
        server.supervisor.stop()
        assert server.supervisor.state is ServerState.CLOSED
        assert server.supervisor.condition.retry_in is None
        server.clock.advance(1000.0)
        assert server.transport.starts == 0

    def test_with_the_policy_never_it_is_tried_once(self, supervise: Supervise) -> None:
        server = supervise(policy=RestartPolicy(restart="never"))
        self.start(server)
        assert server.supervisor.condition.retry_in is None
        assert [event.retry_in for event in server.events if isinstance(event, GaveUp)] == [None]

    def test_a_configuration_that_cannot_be_used_is_not_tried_again(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.start_errors.append(ConfigError("env: the variable TOKEN is not set"))
        assert not server.supervisor.start(keep_trying=True)
        assert server.supervisor.condition.retry_in is None
        with pytest.raises(ServerUnavailable, match=r"the variable TOKEN is not set$"):
            server.call().result(PATIENCE)

    def test_a_failure_is_one_error_in_the_log_and_further_attempts_are_information(
        self, supervise: Supervise, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "gaia")
        server = supervise()
        self.start(server, failures=3)
        server.pass_time(0.5)
        server.pass_time(1.0)
        server.pass_time(2.0)
        server.wait_for_state(ServerState.READY)
        server.settle()
        log.flush()
        logged = [(record.levelname, record.getMessage().split()[0]) for record in caplog.records]
        assert [one for one in logged if one[1] != "server_ready"] == [
            ("ERROR", "server_failed"),
            ("INFO", "server_still_failing"),
            ("INFO", "server_still_failing"),
        ]

    def test_a_server_that_was_ready_in_between_fails_anew(
        self, supervise: Supervise, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = supervise(policy=RestartPolicy(max_restarts=1, jitter=0.0))
        self.start(server)
        server.pass_time(0.5)
        server.wait_for_state(ServerState.READY)
        server.transport.channel(1).end(exit_code=1)
        server.wait_for_state(ServerState.FAILED)
        server.settle()
        log.flush()
        assert [record.getMessage().split()[0] for record in caplog.records] == ["server_failed"] * 2


class TestOpenCircuit:
    def test_too_many_restarts_open_it_and_calls_are_refused_at_once_with_the_reason(
        self, supervise: Supervise
    ) -> None:
        server = supervise(policy=FRAGILE).started()
        gave_up = open_circuit(server)
        assert gave_up.retry_in == 60.0
        assert "exited with code 1" in gave_up.reason
        assert server.supervisor.state is ServerState.FAILED
        error = server.call().exception(PATIENCE)
        assert isinstance(error, ServerUnavailable)
        assert error.delivery == "not_sent"
        assert "exited with code 1" in error.message
        assert "60 s" in error.message

    def test_calls_that_waited_are_refused_when_it_opens(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()
        restart(server)
        restart(server, 0.5)
        third = server.transport.channel(3)
        third.hold_closing()
        third.end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        result = server.submit()
        third.let_close()
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerUnavailable)
        assert error.delivery == "not_sent"

    def test_after_the_cooldown_one_attempt_is_made_and_calls_wait_for_it(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()
        initialize = server.transport.answers["initialize"]
        open_circuit(server)
        del server.transport.answers["initialize"]
        server.pass_time(60.0)
        fourth = server.transport.channel(4)
        server.wait_for_state(ServerState.RESTARTING)
        result = server.submit()
        request = fourth.wait_for("initialize")
        fourth.answer(request, initialize(request))
        fourth.answer(fourth.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT
        assert server.supervisor.state is ServerState.READY

    def test_an_attempt_that_fails_opens_it_for_longer(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()
        open_circuit(server)
        for cooldown in (60.0, 120.0, 240.0, 480.0, 600.0, 600.0):
            server.transport.start_errors.append(StartFailed("still broken"))
            server.pass_time(cooldown)
            gave_up = server.wait_for(GaveUp)
            assert gave_up.retry_in == min(cooldown * 2, 600.0)
            assert "still broken" in gave_up.reason

    def test_an_attempt_that_lasts_closes_it(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()
        open_circuit(server)
        server.pass_time(60.0)
        server.wait_for(Restarted)
        server.clock.advance(FRAGILE.stable_after)
        restart(server)
        restart(server, 0.5)

    def test_an_attempt_that_does_not_last_does_not_close_it(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()
        open_circuit(server)
        server.pass_time(60.0)
        server.wait_for(Restarted)
        server.clock.advance(FRAGILE.stable_after - 1)
        server.transport.channel(4).end(exit_code=1)
        assert server.wait_for(GaveUp).retry_in == 120.0


class TestExits:
    """A server that ends with 0 by itself has not failed, unless somebody waits for it."""

    def test_an_idle_server_may_leave(self, server: Supervised) -> None:
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        assert server.states == [ServerState.STARTING, ServerState.READY, ServerState.EXITED]
        server.clock.wait_for_waiter(None)
        assert server.transport.starts == 1

    def test_the_next_call_starts_it_again_at_once_and_nothing_missed_it_before(self, server: Supervised) -> None:
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        server.clock.advance(3600.0)
        result = server.submit()
        assert server.is_answered_by(2, result)
        assert len(server.transport.channel(2).requests("initialize")) == 1
        assert server.wait_for(Restarted).downtime == 0.0

    def test_a_call_that_comes_while_it_is_leaving_starts_it_again(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.end_slowly(exit_code=0)
        result = server.submit()
        server.settle()
        # Not both at once.
        assert server.transport.starts == 1
        first.let_close()
        assert server.is_answered_by(2, result)

    def test_leaving_while_a_call_waits_is_a_failure(self, server: Supervised) -> None:
        result = server.submit()
        server.transport.channel().wait_for("tools/call")
        server.transport.channel().end(exit_code=0)
        assert isinstance(result.exception(PATIENCE), ServerCrashed)
        server.wait_for_state(ServerState.RESTARTING)
        server.wait_for(Restarted)

    def test_leaving_after_the_only_call_was_given_up_is_none(self, server: Supervised) -> None:
        result = server.submit()
        server.transport.channel().wait_for("tools/call")
        assert result.cancel()
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)

    def test_a_probe_of_ours_is_nobody_who_waits(self, supervise: Supervise) -> None:
        server = supervise(health_interval=30.0)
        del server.transport.answers["ping"]
        server.started()
        server.pass_time(30.0)
        server.transport.channel().wait_for("ping")
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)

    def test_leaving_in_the_handshake_of_a_restart_that_nobody_waits_for_is_none(self, server: Supervised) -> None:
        del server.transport.answers["initialize"]
        server.transport.channel().end(exit_code=1)
        server.transport.channel(2).end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)

    def test_with_always_it_is_restarted_even_then(self, supervise: Supervise) -> None:
        server = supervise(policy=RestartPolicy("always", jitter=0.0)).started()
        server.transport.channel().end(exit_code=0)
        server.wait_for(Restarted)


class TestNever:
    POLICY = RestartPolicy("never")

    def test_the_first_end_is_the_last(self, supervise: Supervise) -> None:
        server = supervise(policy=self.POLICY).started()
        server.transport.channel().end(exit_code=1)
        gave_up = server.wait_for(GaveUp)
        assert gave_up.retry_in is None
        assert "exited with code 1" in gave_up.reason
        assert server.states == [ServerState.STARTING, ServerState.READY, ServerState.FAILED]
        with pytest.raises(ServerUnavailable, match="exited with code 1"):
            server.call().result(PATIENCE)
        server.clock.wait_for_waiter(None)

    def test_calls_that_were_not_written_are_refused(self, supervise: Supervise) -> None:
        server = supervise(policy=self.POLICY).started()
        server.transport.channel().stop_reading()
        result = server.submit()
        server.transport.channel().end(exit_code=1)
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerUnavailable)
        assert error.delivery == "not_sent"


UNTIL = 30.0


class Bench:
    """A trial with calls that wait, and a server that a test plays."""

    def __init__(self, clock: FakeClock, calls: int) -> None:
        self.clock = clock
        self.loop = EventLoop(clock)
        self.calls = [cast(Call, Mock(error=None)) for _ in range(calls)]
        self.waiting = list(self.calls)
        self.on_ended: dict[int, Callable[[Call], None]] = {}
        self.passed = 0
        self.trial = Trial(cast(Any, self), self.loop, lambda _: None, self._pass)

    def admit_one(self, _connection: Connection, _refusal: object, on_ended: Callable[[Call], None]) -> Call | None:
        if not self.waiting:
            return None
        call = self.waiting.pop(0)
        self.on_ended[id(call)] = on_ended
        return call

    def _pass(self) -> None:
        self.passed += 1
        self.trial.end()

    def end(self, call: Call, error: MCPError | None) -> None:
        call.error = error
        self.on_ended[id(call)](call)
        for task in self.loop.drain():
            task()


@pytest.fixture
def bench(fake_clock: FakeClock) -> Bench:
    bench = Bench(fake_clock, 3)
    bench.trial.begin(cast(Connection, Mock()), fake_clock.monotonic() + UNTIL)
    return bench


def test_a_call_without_an_answer_gives_way_to_the_next(bench: Bench) -> None:
    first, second, _ = bench.calls
    bench.end(first, CallTimeout("late"))
    assert bench.passed == 0
    assert len(bench.waiting) == 1
    bench.end(first, None)
    assert bench.passed == 0, "its turn is over"
    bench.end(second, None)
    assert bench.passed == 1


def test_after_its_end_no_call_is_handed_over(bench: Bench) -> None:
    bench.trial.end()
    bench.trial.try_next()
    assert len(bench.waiting) == 2
    assert bench.loop.timers.next_deadline() is None
