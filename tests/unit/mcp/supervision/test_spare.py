"""A stand-by: a second process, started and greeted, that takes over when the server is lost."""

from __future__ import annotations

import threading

import pytest
from opentelemetry.trace import StatusCode

from gaia.mcp.errors import CallCancelled, ServerCrashed, ServerUnavailable, StartFailed
from gaia.mcp.supervision import spare
from gaia.mcp.supervision.events import Event, Restarted, ServerState, StateChanged
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.status import StandbyStatus
from gaia.runtime import log
from tests.fake_transport import PATIENCE, FakeChannel, handshake_answers
from tests.supervised import FRAGILE, Supervised
from tests.tracing import Tracing, attributes_of
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise
from tests.waiting import wait_until

TEXT = {"content": "text"}
RELAXED = RestartPolicy(jitter=0.0, max_restarts=1000)


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return started(supervise(standby=True))


def started(server: Supervised) -> Supervised:
    server.started()
    wait_for_standby(server, 2)
    return server


def status(server: Supervised) -> StandbyStatus | None:
    return server.supervisor.condition.status(server.statistics, 0).standby


def wait_for_standby(server: Supervised, number: int) -> FakeChannel:
    """Return when the start of this number has been greeted and waits."""
    channel = server.transport.channel(number)

    def waits() -> bool:
        now = status(server)
        return now is not None and (now.state, now.pid) == ("ready", channel.pid)

    assert wait_until(waits), status(server)
    return channel


def wait_for_retry(server: Supervised, retry_in: float, error: str) -> None:
    expected = StandbyStatus(state="retrying", retry_in=retry_in, last_error=error)
    assert wait_until(lambda: status(server) == expected), status(server)


def being_greeted(server: Supervised) -> FakeChannel:
    """Have the next stand-by take long: the start of number 3."""
    del server.transport.answers["initialize"]
    server.transport.channel(2).end(exit_code=1)
    third = server.transport.channel(3)
    third.wait_for("initialize")
    return third


def fail_next_starts(server: Supervised, *errors: str, after: ServerState = ServerState.READY) -> None:
    """From the next change to that state on, so many starts fail."""

    def fail(event: Event) -> None:
        if isinstance(event, StateChanged) and event.new is after:
            server.reactions.remove(fail)
            server.transport.start_errors.extend(StartFailed(error) for error in errors)

    server.reactions.append(fail)


class TestWaiting:
    def test_it_is_started_and_greeted_and_gets_no_call(self, server: Supervised) -> None:
        second = server.transport.channel(2)
        assert len(second.requests("initialize")) == len(second.requests("tools/list")) == 1
        assert server.is_answered_by(1)
        assert second.requests("tools/call") == []
        assert server.supervisor.condition.pid == server.transport.channel(1).pid
        assert server.supervisor.condition.generation == 1

    def test_there_is_none_unless_it_is_wanted(self, supervise: Supervise) -> None:
        server = supervise().started()
        server.settle()
        assert status(server) is None
        assert server.transport.starts == 1

    def test_its_tools_do_not_count_before_it_takes_over(self, supervise: Supervise) -> None:
        server = supervise(standby=True)
        listings = iter([[{"name": "old"}], [{"name": "new"}]])
        server.transport.answers["tools/list"] = lambda _: {"tools": next(listings)}
        started(server)
        assert server.listings == [[{"name": "old"}]]
        server.transport.answers["tools/list"] = lambda _: {"tools": []}
        server.transport.channel(1).end(exit_code=1)
        assert server.wait_for_listing(2) == [{"name": "new"}]

    def test_what_the_next_loss_needs_is_loaded_before(
        self, supervise: Supervise, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loaded = threading.Event()
        monkeypatch.setattr(spare, "load_backoff", loaded.set)
        started(supervise(standby=True))
        assert loaded.wait(PATIENCE)

    def test_one_that_cannot_be_started_is_a_warning_and_tried_again_with_backoff(
        self, supervise: Supervise, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = supervise(standby=True)
        fail_next_starts(server, "no memory", "no memory")
        server.started()
        wait_for_retry(server, 0.5, "no memory")
        assert server.is_answered_by(1)
        server.pass_time(0.5)
        wait_for_retry(server, 1.0, "no memory")
        server.pass_time(1.0)
        wait_for_standby(server, 2)
        assert server.states == [ServerState.STARTING, ServerState.READY]
        assert server.supervisor.condition.last_error is None
        log.flush()
        assert [record.levelname for record in caplog.records if "standby_failed" in record.message] == ["WARNING"] * 2

    def test_one_that_cannot_list_its_tools_is_not_fit_to_take_over(self, supervise: Supervise) -> None:
        server = supervise(standby=True)
        del server.transport.answers["tools/list"]
        starting = server.in_background(server.supervisor.start)
        first = server.transport.channel(1)
        first.answer(first.wait_for("tools/list"), {"tools": []})
        assert starting.result(PATIENCE)
        second = server.transport.channel(2)
        second.answer_error(second.wait_for("tools/list"), -32603, "no database")
        assert wait_until(lambda: (now := status(server)) is not None and now.state == "retrying")
        assert server.supervisor.condition.last_error is None

    def test_one_that_dies_is_replaced_and_is_no_failure_of_the_server(self, server: Supervised) -> None:
        server.transport.channel(2).end(exit_code=3)
        third = wait_for_standby(server, 3)
        third.end(signal="SIGKILL")
        wait_for_retry(server, 0.5, "the server was killed by SIGKILL")
        server.pass_time(0.5)
        wait_for_standby(server, 4)
        assert server.states == [ServerState.STARTING, ServerState.READY]
        assert server.supervisor.condition.restarts == 0
        assert server.is_answered_by(1)

    def test_those_that_die_all_the_time_are_started_no_more_often_than_the_server_would(
        self, supervise: Supervise
    ) -> None:
        server = started(supervise(standby=True, policy=FRAGILE))
        server.transport.channel(2).end(exit_code=1)
        wait_for_standby(server, 3).end(exit_code=1)
        wait_for_retry(server, 0.5, "the server exited with code 1")
        server.pass_time(0.5)
        wait_for_standby(server, 4).end(exit_code=1)
        wait_for_retry(server, 60.0, "the server exited with code 1")
        assert server.supervisor.state is ServerState.READY

    def test_one_that_hangs_is_found_and_replaced(self, supervise: Supervise) -> None:
        server = supervise(standby=True, health_interval=30.0)
        started(server)
        second = server.transport.channel(2)
        second.take_over("ping")
        second.take_over("tools/list")
        server.pass_time(30.0)
        second.wait_for("ping")
        server.pass_time(10.0)
        second.wait_for("tools/list", 2)
        server.pass_time(10.0)
        second.wait_until_closing()
        assert second.closed_with_grace == 0.0
        wait_for_standby(server, 3)
        assert server.states == [ServerState.STARTING, ServerState.READY]

    def test_the_state_of_one_that_is_being_greeted_is_starting(self, supervise: Supervise) -> None:
        server = supervise(standby=True)
        del server.transport.answers["initialize"]
        starting = server.in_background(server.supervisor.start)
        first = server.transport.channel(1)
        first.answer(first.wait_for("initialize"), {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert starting.result(PATIENCE)
        second = server.transport.channel(2)
        second.wait_for("initialize")
        assert status(server) == StandbyStatus(state="starting", pid=second.pid)


class TestTakingOver:
    @pytest.mark.parametrize(
        ("ending", "reason"),
        [
            ({"exit_code": 1}, "the server exited with code 1"),
            ({"signal": "SIGKILL"}, "the server was killed by SIGKILL"),
            ({}, "the server closed its output"),
        ],
    )
    def test_it_takes_over_at_once_and_the_next_one_is_started(
        self, server: Supervised, ending: dict[str, object], reason: str
    ) -> None:
        first, second = server.transport.channel(1), server.transport.channel(2)
        first.end(**ending)  # type: ignore[arg-type]
        assert server.wait_for(Restarted) == Restarted("fake", 2, downtime=0.0, reason=reason)
        assert server.is_answered_by(2)
        assert server.supervisor.condition.pid == second.pid
        assert server.supervisor.condition.restarts == 1
        wait_for_standby(server, 3)
        assert len(second.requests("initialize")) == 1
        assert server.states == [
            *[ServerState.STARTING, ServerState.READY],
            *[ServerState.RESTARTING, ServerState.READY],
        ]

    def test_a_call_that_the_lost_server_may_still_read_waits_until_it_has_ended(self, server: Supervised) -> None:
        first, second = server.transport.channel(1), server.transport.channel(2)
        first.hold_closing()
        first.stop_reading()
        waiting = server.submit("unread")
        first.end()
        first.wait_until_closing()
        server.wait_for(Restarted)
        assert server.is_answered_by(2)
        first.resume_reading()
        assert first.requests("tools/call") == []
        assert len(second.requests("tools/call")) == 1
        assert server.transport.starts == 2, "the next stand-by is started after the call"
        first.let_close()
        second.answer(second.wait_for("tools/call", 2), TEXT)
        assert waiting.result(PATIENCE) == TEXT
        assert second.requests("tools/call")[1]["params"]["name"] == "unread"
        assert first.requests("tools/call") == []

    def test_a_safe_call_in_flight_is_repeated_on_it(self, server: Supervised) -> None:
        first, second = server.transport.channel(1), server.transport.channel(2)
        result = server.submit("look", repeatable=True)
        first.wait_for("tools/call")
        first.end(signal="SIGKILL")
        second.answer(second.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT

    def test_another_call_in_flight_fails_and_says_that_it_may_have_happened(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        result = server.submit()
        first.wait_for("tools/call")
        first.end(signal="SIGKILL")
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert server.transport.channel(2).requests("tools/call") == []

    def test_one_that_is_still_being_greeted_takes_over_when_that_is_done(self, server: Supervised) -> None:
        third = being_greeted(server)
        server.transport.channel(1).end(signal="SIGKILL")
        server.wait_for_state(ServerState.RESTARTING)
        result = server.submit()
        opening = third.wait_for("initialize")
        third.answer(opening, {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert server.is_answered_by(3, result)

    def test_one_that_fails_while_the_server_is_lost_is_a_failed_start_of_the_server(self, server: Supervised) -> None:
        third = being_greeted(server)
        server.transport.channel(1).end(signal="SIGKILL")
        server.wait_for_state(ServerState.RESTARTING)
        server.settle()
        third.end(exit_code=1)
        server.pass_time(0.5)
        server.transport.channel(4).wait_for("initialize")

    def test_both_lost_at_once_is_one_restart(self, server: Supervised) -> None:
        second = server.transport.channel(2)
        second.die(signal="SIGKILL")
        server.transport.channel(1).end(signal="SIGKILL")
        server.wait_for(Restarted)
        assert server.supervisor.condition.generation == 3
        assert server.is_answered_by(3)
        assert second.requests("tools/call") == []

    def test_a_server_that_keeps_failing_opens_the_circuit_and_has_no_standby_then(self, supervise: Supervise) -> None:
        server = started(supervise(standby=True, policy=FRAGILE))
        server.transport.channel(1).end(exit_code=1)
        wait_for_standby(server, 3)
        server.transport.channel(2).end(exit_code=1)
        server.wait_for(Restarted, lambda event: event.generation == 3)
        # As after the second failure without a stand-by.
        assert wait_until(lambda: (now := status(server)) is not None and now.retry_in == 0.5)
        server.pass_time(0.5)
        fourth = wait_for_standby(server, 4)
        server.transport.channel(3).end(exit_code=1)
        server.wait_for_state(ServerState.FAILED)
        fourth.wait_until_closing()
        assert wait_until(lambda: status(server) is None)
        assert isinstance(server.call().exception(PATIENCE), ServerUnavailable)
        server.pass_time(60.0)
        server.wait_for_state(ServerState.READY)
        assert server.is_answered_by(5)
        wait_for_standby(server, 6)

    def test_a_server_that_hangs_is_lost_too(self, supervise: Supervise) -> None:
        server = started(supervise(standby=True, health_interval=30.0))
        first = server.transport.channel(1)
        first.take_over("ping")
        first.take_over("tools/list")
        server.pass_time(30.0)
        first.wait_for("ping")
        server.pass_time(10.0)
        first.wait_for("tools/list", 2)
        server.pass_time(10.0)
        assert server.wait_for(Restarted).generation == 2
        first.wait_until_closing()
        assert server.is_answered_by(2)

    def test_what_is_subscribed_is_set_up_again_before_calls_are_sent(self, supervise: Supervise) -> None:
        server = supervise(standby=True)
        server.subscriptions.add_resource("file:///a")
        server.subscriptions.set_log_level("error")
        server.transport.answers |= {"logging/setLevel": lambda _: {}, "resources/subscribe": lambda _: {}}
        started(server)
        second = server.transport.channel(2)
        assert second.requests("resources/subscribe") == second.requests("logging/setLevel") == []
        server.transport.channel(1).end(exit_code=1)
        second.wait_for("resources/subscribe")
        second.wait_for("logging/setLevel")


class TestExitedServer:
    """One that leaves by itself, properly, while no call waits, is started again when a call comes."""

    def test_its_standby_answers_the_next_call(self, server: Supervised) -> None:
        server.transport.channel(1).end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        server.settle()
        assert server.transport.starts == 2
        assert server.is_answered_by(2)
        assert server.wait_for(Restarted).generation == 2
        wait_for_standby(server, 3)

    def test_a_standby_that_leaves_too_is_not_started_again_before_that(self, server: Supervised) -> None:
        server.transport.channel(1).end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        server.transport.channel(2).end(exit_code=0)
        assert wait_until(lambda: status(server) is None)
        server.settle()
        assert server.transport.starts == 2
        result = server.submit()
        assert server.is_answered_by(3, result)
        wait_for_standby(server, 4)


class TestStopping:
    def test_both_are_ended(self, server: Supervised) -> None:
        server.supervisor.stop()
        for number in (1, 2):
            assert server.transport.channel(number).closed_with_grace is not None
        assert status(server) is None

    def test_one_that_is_being_greeted_is_ended(self, server: Supervised) -> None:
        third = being_greeted(server)
        server.supervisor.stop()
        assert third.closed_with_grace is not None

    def test_the_spans_of_one_that_is_being_greeted_end_as_cancelled(
        self, tracing: Tracing, supervise: Supervise
    ) -> None:
        server = supervise(standby=True)
        del server.transport.answers["initialize"]
        starting = server.in_background(server.supervisor.start)
        first = server.transport.channel(1)
        opening = first.wait_for("initialize")
        first.answer(opening, handshake_answers()["initialize"](opening))
        assert starting.result(PATIENCE)
        server.transport.channel(2).wait_for("initialize")
        server.supervisor.stop()
        (start,) = tracing.wait_for("gaia.mcp.standby fake")
        assert start.status.status_code is StatusCode.UNSET, "nothing has failed"
        asked = [span for span in tracing.wait_for("initialize", 2) if span.parent == start.context]
        assert [attributes_of(span)["error.type"] for span in asked] == ["cancelled"]

    def test_a_lost_server_that_is_still_ending_is_waited_for(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.hold_closing()
        first.end(exit_code=1)
        server.wait_for(Restarted)
        first.stop_reading()
        stopping = server.in_background(server.supervisor.stop)
        server.transport.channel(2).wait_until_closing()
        assert not stopping.done()
        first.let_close()
        stopping.result(PATIENCE)

    def test_a_call_that_waits_for_the_end_of_a_lost_server_is_cancelled(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.hold_closing()
        first.stop_reading()
        waiting = server.submit()
        first.end()
        server.wait_for(Restarted)
        stopping = server.in_background(server.supervisor.stop)
        assert isinstance(waiting.exception(PATIENCE), CallCancelled)
        first.let_close()
        stopping.result(PATIENCE)
