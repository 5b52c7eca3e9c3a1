"""What is done with a server: start, restart, refusal, exit. Time is a number, and the server a list."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia import log
from gaia.mcp.client.rpc.connection import ConnectionState
from gaia.mcp.client.supervision.caller import CallFuture
from gaia.mcp.client.supervision.events import Event, GaveUp, Restarted, ServerState, StateChanged
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.errors import (
    CallTimeout,
    ConfigError,
    NotConnected,
    ServerCrashed,
    ServerUnavailable,
    StartFailed,
)
from gaia.testing import FakeClock
from tests.supervised import FRAGILE, STEADY, Supervised, open_circuit, restart
from tests.waiting import PATIENCE

Supervise = Callable[..., Supervised]

TEXT = {"content": [{"type": "text", "text": "hello"}]}


class TestStarting:
    def test_it_is_ready_after_handshake_and_listing(self, supervise: Supervise) -> None:
        server = supervise()
        assert server.supervisor.start()
        channel = server.transport.channel()
        assert [channel.wait_for(method)["method"] for method in ("initialize", "notifications/initialized")]
        assert server.listings == [server.transport.tools]
        assert server.states == [ServerState.STARTING, ServerState.READY]
        assert server.supervisor.condition.generation == 1
        assert server.supervisor.condition.pid == channel.pid
        assert server.supervisor.condition.restarts == 0
        assert server.supervisor.condition.last_error is None
        assert server.supervisor.condition.profile is not None
        assert server.supervisor.condition.profile.server_info == {"name": "fake", "version": "1"}

    def test_a_server_without_tools_is_not_asked_for_them(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.answers["initialize"] = lambda _: {"protocolVersion": "2025-11-25", "capabilities": {}}
        server.started()
        assert server.listings == [[]]
        assert server.transport.channel().requests("tools/list") == []

    def test_a_server_that_cannot_list_its_tools_is_ready_without_them(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.answers["tools/list"] = lambda _: {"nothing": "useful"}
        server.started()
        assert server.listings == [[]]
        assert "tools/list" in (server.supervisor.condition.last_error or "")

    def test_a_first_start_that_fails_is_final(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.start_errors.append(StartFailed("no such program"))
        assert not server.supervisor.start()
        assert server.supervisor.state is ServerState.FAILED
        assert server.supervisor.condition.last_error == "no such program"
        assert server.wait_for(GaveUp) == GaveUp("fake", reason="no such program", retry_in=None)
        assert server.transport.starts == 0

    @pytest.mark.parametrize(
        ("ending", "words"),
        [
            ({"exit_code": 3, "stderr": "no module named server"}, ["exited with code 3", "no module named server"]),
            ({"exit_code": 0}, ["exited with code 0"]),
            ({"signal": "SIGSEGV", "stderr": "oh"}, ["killed by SIGSEGV", "oh"]),
            ({}, ["closed its output"]),
        ],
    )
    def test_an_end_before_the_first_handshake_is_reported_in_full(
        self, supervise: Supervise, ending: dict[str, Any], words: list[str]
    ) -> None:
        server = supervise()
        del server.transport.answers["initialize"]
        ready = server.in_background(server.supervisor.start)
        server.transport.channel().wait_for("initialize")
        server.transport.channel().end(**ending)
        assert ready.result(PATIENCE) is False
        assert server.supervisor.state is ServerState.FAILED
        assert all(word in str(server.supervisor.condition.last_error) for word in words)
        assert server.transport.starts == 1

    def test_what_a_dying_server_wrote_on_stderr_is_reported_even_if_it_is_read_after_its_end(
        self, supervise: Supervise
    ) -> None:
        server = supervise()
        del server.transport.answers["initialize"]
        ready = server.in_background(server.supervisor.start)
        server.transport.channel().final_stderr = "Traceback: the cause"
        server.transport.channel().end(exit_code=1)
        assert ready.result(PATIENCE) is False
        assert "exited with code 1" in str(server.supervisor.condition.last_error)
        assert "Traceback: the cause" in str(server.supervisor.condition.last_error)

    def test_a_silent_handshake_ends_with_its_time(self, supervise: Supervise) -> None:
        server = supervise(timeout=7.0)
        del server.transport.answers["initialize"]
        ready = server.in_background(server.supervisor.start)
        channel = server.transport.channel()
        channel.final_stderr = "waiting for a licence"
        server.pass_time(7.0)
        assert ready.result(PATIENCE) is False
        assert "initialize" in str(server.supervisor.condition.last_error)
        assert "waiting for a licence" in str(server.supervisor.condition.last_error)
        assert channel.closed_with_grace is not None
        # The specification forbids it for this one request.
        assert channel.requests("notifications/cancelled") == []

    def test_the_time_to_get_ready_covers_all_of_the_handshake(self, supervise: Supervise) -> None:
        server = supervise(timeout=10.0)
        initialize = server.transport.answers.pop("initialize")
        del server.transport.answers["tools/list"]
        ready = server.in_background(server.supervisor.start)
        channel = server.transport.channel()
        request = channel.wait_for("initialize")
        server.clock.wait_for_waiter(server.clock.monotonic() + 10.0)
        server.clock.advance(6.0)
        channel.answer(request, initialize(request))
        channel.wait_for("tools/list")
        server.pass_time(4.0)
        assert ready.result(PATIENCE) is False

    def test_a_server_of_an_unknown_revision_is_refused_and_closed(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.answers["initialize"] = lambda _: {"protocolVersion": "1.0.0"}
        assert not server.supervisor.start()
        assert "1.0.0" in str(server.supervisor.condition.last_error)
        assert server.transport.channel().closed_with_grace is not None

    def test_calls_wait_until_the_server_is_ready(self, supervise: Supervise) -> None:
        server = supervise()
        listing = server.transport.answers.pop("tools/list")
        ready = server.in_background(server.supervisor.start)
        channel = server.transport.channel()
        request = channel.wait_for("tools/list")
        result = server.submit()
        assert channel.requests("tools/call") == []
        channel.answer(request, listing(request))
        channel.answer(channel.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT
        assert ready.result(PATIENCE) is True

    def test_a_server_that_was_never_started_refuses_calls(self, supervise: Supervise) -> None:
        server = supervise()
        with pytest.raises(NotConnected, match="Not connected to server 'fake'"):
            server.call().result(PATIENCE)


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
        assert server.call_answered_with(TEXT)

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


class TestRestarting:
    def test_a_crash_leads_to_a_new_process_with_a_handshake_and_a_listing_of_its_own(self, server: Supervised) -> None:
        first = server.transport.channel()
        server.transport.tools = [{"name": "other"}]
        first.end(exit_code=1)
        assert "exited with code 1" in str(server.wait_for_state(ServerState.RESTARTING).reason)
        server.wait_for_state(ServerState.READY)
        second = server.transport.channel(2)
        assert len(second.requests("initialize")) == 1
        assert len(second.requests("notifications/initialized")) == 1
        assert server.wait_for_listing(2) == [{"name": "other"}]
        assert server.wait_for(Restarted) == Restarted("fake", 2, downtime=0.0)
        assert server.supervisor.condition.generation == 2
        assert server.supervisor.condition.restarts == 1
        assert server.supervisor.condition.pid == second.pid
        assert "exited with code 1" in str(server.supervisor.condition.last_error)

    def test_the_old_server_has_ended_completely_before_the_new_one_starts(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.hold_closing()
        first.end()
        first.wait_until_closing()
        server.clock.advance(60.0)
        assert server.transport.starts == 1
        first.let_close()
        server.transport.channel(2)

    def test_the_wait_grows_with_each_failure_and_is_short_again_for_a_server_that_was_stable(
        self, supervise: Supervise
    ) -> None:
        server = supervise(policy=RestartPolicy(jitter=0.0, max_restarts=100)).started()
        for delay in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
            restart(server, delay)
        server.clock.advance(STEADY.stable_after)
        restart(server, 0.0)
        restart(server, 0.5)

    def test_a_restart_that_fails_is_a_failure_like_a_crash(self, server: Supervised) -> None:
        server.transport.start_errors.append(StartFailed("out of memory"))
        server.transport.channel().end(exit_code=1)
        server.pass_time(0.5)
        assert server.wait_for(Restarted).downtime == 0.5
        # The attempt that did not get as far as a process was a generation, too.
        assert server.supervisor.condition.generation == 3

    def test_the_downtime_lasts_from_the_end_to_the_next_readiness_whatever_happens_in_between(
        self, server: Supervised
    ) -> None:
        restart(server)
        initialize = server.transport.answers.pop("initialize")
        server.clock.advance(STEADY.stable_after)
        server.transport.channel(2).end(exit_code=1)
        server.transport.channel(3).wait_for("initialize")
        server.transport.answers["initialize"] = initialize
        server.transport.channel(3).end(exit_code=1)
        server.pass_time(0.5)
        assert server.wait_for(Restarted).downtime == 0.5

    def test_the_downtime_begins_with_the_end_of_the_server_even_at_the_beginning_of_time(
        self, supervise: Supervise
    ) -> None:
        server = supervise(clock=FakeClock(0.0)).started()
        server.transport.start_errors.append(StartFailed("not yet"))
        server.transport.channel().end(exit_code=1)
        server.pass_time(0.5)
        assert server.wait_for(Restarted).downtime == 0.5

    def test_a_call_that_was_not_written_goes_to_the_next_generation(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.stop_reading()
        results = [server.submit(tool) for tool in ("one", "two", "three")]
        first.end(signal="SIGKILL")
        second = server.transport.channel(2)
        for number, name in enumerate(("one", "two", "three"), 1):
            request = second.wait_for("tools/call", number)
            assert request["params"]["name"] == name
            second.answer(request, TEXT)
        assert [result.result(PATIENCE) for result in results] == [TEXT] * 3
        assert first.requests("tools/call") == []

    def test_a_call_that_comes_during_the_backoff_goes_to_the_next_generation(self, server: Supervised) -> None:
        restart(server)
        server.transport.channel(2).end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        result = server.submit()
        server.pass_time(0.5)
        third = server.transport.channel(3)
        third.answer(third.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT

    def test_a_written_call_fails_and_says_that_it_may_have_happened(self, server: Supervised) -> None:
        result = server.submit()
        server.transport.channel().wait_for("tools/call")
        server.transport.channel().end(exit_code=139)
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert "exited with code 139" in error.message
        server.wait_for(Restarted)
        assert server.transport.channel(2).requests("tools/call") == []

    def test_callers_learn_of_the_end_before_the_cleaning_up(self, server: Supervised) -> None:
        result = server.submit()
        channel = server.transport.channel()
        channel.wait_for("tools/call")
        channel.hold_closing()
        channel.end()
        assert isinstance(result.exception(PATIENCE), ServerCrashed)
        server.wait_for_state(ServerState.RESTARTING)

    def test_a_safe_call_is_repeated_under_a_new_id(self, server: Supervised) -> None:
        result = server.submit("look", repeatable=True)
        first_id = server.transport.channel().wait_for("tools/call")["id"]
        second = restart(server)
        request = second.wait_for("tools/call")
        assert request["id"] != first_id
        second.answer(request, TEXT)
        assert result.result(PATIENCE) == TEXT

    def test_a_call_is_not_repeated_that_is_safe_no_longer(self, server: Supervised) -> None:
        result = server.submit("look", repeatable=True)
        server.transport.channel().wait_for("tools/call")
        server.unsafe.add("look")
        second = restart(server)
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert second.requests("tools/call") == []

    def test_a_call_that_was_safe_before_the_server_was_ready_is_not_so_after_it(self, server: Supervised) -> None:
        restart(server)
        server.transport.channel(2).end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        result = server.submit("look", repeatable=True)
        server.unsafe.add("look")
        server.pass_time(0.5)
        server.transport.channel(3).wait_for("tools/call")
        server.transport.channel(3).end(exit_code=1)
        assert isinstance(result.exception(PATIENCE), ServerCrashed)

    def test_a_safe_call_is_repeated_once_and_not_twice(self, server: Supervised) -> None:
        result = server.submit("look", repeatable=True)
        server.transport.channel().wait_for("tools/call")
        second = restart(server)
        second.wait_for("tools/call")
        third = restart(server, 0.5)
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert third.requests("tools/call") == []

    def test_a_safe_call_that_is_not_repeated_in_time_may_have_happened(self, server: Supervised) -> None:
        restart(server)
        result = server.submit("look", timeout=0.3, repeatable=True)
        server.transport.channel(2).wait_for("tools/call")
        server.transport.channel(2).end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        server.pass_time(0.3)
        error = result.exception(PATIENCE)
        assert isinstance(error, CallTimeout)
        assert error.delivery == "unknown"

    def test_a_deadline_covers_waiting_for_the_restart(self, server: Supervised) -> None:
        restart(server)
        server.transport.channel(2).end(exit_code=1)
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.5)
        waiting = server.call(timeout=0.3)
        future = server.submit(timeout=0.3)
        server.wait_for_waiters(server.clock.monotonic() + 0.3, 2)
        server.clock.advance(0.3)
        for result in (waiting, future):
            error = result.exception(PATIENCE)
            assert isinstance(error, CallTimeout)
            assert error.delivery == "not_sent"
        server.pass_time(0.2)
        server.wait_for(Restarted)
        assert server.transport.channel(3).requests("tools/call") == []

    def test_a_deadline_covers_waiting_for_a_server_that_ends_slowly(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.hold_closing()
        first.end()
        first.wait_until_closing()
        future = server.submit(timeout=1.0)
        server.pass_time(1.0)
        assert isinstance(future.exception(PATIENCE), CallTimeout)

    @pytest.mark.parametrize("ending", [{}, {"exit_code": 1}])
    def test_a_call_that_goes_to_the_next_generation_cannot_reach_the_old_one_any_more(
        self, server: Supervised, ending: dict[str, Any]
    ) -> None:
        first = server.transport.channel()
        first.stop_reading()
        result = server.submit()

        def read_on(event: Event) -> None:
            # The call is in the backlog now, and the old channel not closed yet.
            if isinstance(event, StateChanged) and event.new is ServerState.RESTARTING:
                first.resume_reading()

        server.reactions.append(read_on)
        first.end(**ending)
        second = server.transport.channel(2)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT
        assert first.requests("tools/call") == []

    def test_the_old_connection_is_closed_for_good(self, server: Supervised) -> None:
        connection = server.supervisor.call_queue.ready
        assert connection is not None
        restart(server)
        assert connection.state is ConnectionState.CLOSED
        assert server.supervisor.call_queue.ready is not connection

    def test_an_answer_of_the_old_generation_after_its_end_is_ignored(self, server: Supervised) -> None:
        first = server.transport.channel()
        result = server.submit("look", repeatable=True)
        request = first.wait_for("tools/call")
        second = restart(server)
        first.answer(request, {"content": "late"})
        second.answer(second.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT

    def test_the_end_of_a_generation_that_is_gone_already_changes_nothing(self, server: Supervised) -> None:
        first = server.transport.channel()
        restart(server)
        first.end(exit_code=1)
        result = server.submit()
        server.transport.channel(2).answer(server.transport.channel(2).wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT
        assert server.supervisor.state is ServerState.READY

    def test_noise_is_counted_over_all_generations(self, server: Supervised) -> None:
        server.transport.channel().write(b"hello\n")
        restart(server).write(b"world!")
        assert server.supervisor.condition.noise.lines == 2
        assert server.supervisor.condition.noise.size == len(b"hello\n") + len(b"world!")
        assert server.supervisor.condition.noise.last == "world!"

    def test_the_uptime_is_that_of_the_running_generation(self, server: Supervised) -> None:
        server.clock.advance(10.0)
        assert server.supervisor.condition.uptime == 10.0
        first = server.transport.channel()
        first.hold_closing()
        first.end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        assert server.supervisor.condition.uptime is None
        first.let_close()
        server.wait_for(Restarted)
        assert server.supervisor.condition.uptime == 0.0


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


class TestTrial:
    """A server whose circuit was open gets one call, and the others when that was answered, or when it is stable."""

    @pytest.fixture
    def server(self, supervise: Supervise) -> Supervised:
        server = supervise(policy=FRAGILE).started()
        open_circuit(server)
        server.pass_time(60.0)
        server.wait_for(Restarted)
        server.settle()
        return server

    @pytest.fixture
    def calls(self, server: Supervised) -> list[CallFuture]:
        calls = [server.submit(timeout=100.0) for _ in range(3)]
        server.transport.channel(4).wait_for("tools/call")
        server.settle()
        return calls

    def sent(self, server: Supervised) -> int:
        server.settle()
        return len(server.transport.channel(4).requests("tools/call"))

    def test_an_answer_lets_the_others_through(self, server: Supervised, calls: list[CallFuture]) -> None:
        channel = server.transport.channel(4)
        assert self.sent(server) == 1
        channel.answer(channel.wait_for("tools/call"), TEXT)
        for number in (2, 3):
            channel.answer(channel.wait_for("tools/call", number), TEXT)
        assert [call.result(PATIENCE) for call in calls] == [TEXT] * 3
        assert server.call_answered_with(TEXT)

    def test_so_does_an_error_of_the_server(self, server: Supervised, calls: list[CallFuture]) -> None:
        channel = server.transport.channel(4)
        channel.answer_error(channel.wait_for("tools/call"), -32000, "no")
        channel.wait_for("tools/call", 3)

    def test_running_for_long_enough_lets_them_through(self, server: Supervised, calls: list[CallFuture]) -> None:
        server.pass_time(FRAGILE.stable_after)
        server.transport.channel(4).wait_for("tools/call", 3)

    def test_if_the_call_is_given_up_the_next_one_is_the_trial(
        self, server: Supervised, calls: list[CallFuture]
    ) -> None:
        calls[0].cancel()
        server.transport.channel(4).wait_for("tools/call", 2)
        server.transport.channel(4).wait_for("notifications/cancelled")
        assert self.sent(server) == 2

    def test_if_the_server_ends_the_circuit_opens_and_the_others_were_not_sent(
        self, server: Supervised, calls: list[CallFuture]
    ) -> None:
        server.transport.channel(4).end(exit_code=1)
        assert server.wait_for(GaveUp).retry_in == 120.0
        first, *others = [call.exception(PATIENCE) for call in calls]
        assert isinstance(first, ServerCrashed)
        for error in others:
            assert isinstance(error, ServerUnavailable)
            assert error.delivery == "not_sent"
        assert self.sent(server) == 1


class TestExits:
    """A server that ends with 0 by itself has not failed, unless somebody waits for it."""

    def test_an_idle_server_may_leave(self, server: Supervised) -> None:
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        assert server.states == [ServerState.STARTING, ServerState.READY, ServerState.EXITED]
        server.clock.wait_for_waiter(None)
        assert server.transport.starts == 1

    def test_the_next_call_starts_it_again_at_once(self, server: Supervised) -> None:
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        result = server.submit()
        second = server.transport.channel(2)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT
        assert len(second.requests("initialize")) == 1

    def test_nobody_missed_it_before_that_call(self, server: Supervised) -> None:
        server.transport.channel().end(exit_code=0)
        server.wait_for_state(ServerState.EXITED)
        server.clock.advance(3600.0)
        result = server.submit()
        second = server.transport.channel(2)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT
        assert server.wait_for(Restarted).downtime == 0.0

    def test_a_call_that_comes_while_it_is_leaving_starts_it_again(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.hold_closing()
        first.end(exit_code=0)
        first.wait_until_closing()
        result = server.submit()
        server.settle()
        # Not both at once.
        assert server.transport.starts == 1
        first.let_close()
        second = server.transport.channel(2)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert result.result(PATIENCE) == TEXT

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
