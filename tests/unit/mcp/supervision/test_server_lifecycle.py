"""What is done with a server: start, restart, refusal, exit. Time is a number, and the server a list."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.errors import (
    CallTimeout,
    JsonRpcError,
    NotConnected,
    ServerCrashed,
    ServerUnavailable,
    StartFailed,
)
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.rpc.connection import ConnectionState
from gaia.mcp.supervision.events import Event, GaveUp, Restarted, ServerState, StateChanged
from gaia.mcp.supervision.policy import RestartPolicy
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
        reason = "the server exited with code 1"
        assert server.wait_for(Restarted) == Restarted("fake", 2, downtime=0.0, reason=reason)
        assert server.supervisor.condition.generation == 2
        assert server.supervisor.condition.restarts == 1
        assert server.supervisor.condition.pid == second.pid
        assert "exited with code 1" in str(server.supervisor.condition.last_error)

    def test_the_old_server_has_ended_completely_before_the_new_one_starts(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.end_slowly()
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

    def test_a_server_that_has_answered_calls_is_started_again_without_a_wait_each_time(
        self, server: Supervised
    ) -> None:
        for number in range(1, 6):
            channel = server.transport.channel(number)
            result = server.submit()
            request = channel.wait_for("tools/call")
            if number % 2:
                channel.answer(request, TEXT)
                result.result(PATIENCE)
            else:
                channel.answer_error(request, -32602, "not like that")
                assert isinstance(result.exception(PATIENCE), JsonRpcError)
            channel.end(exit_code=1)
            assert server.wait_for(Restarted).downtime == 0.0
        channel = server.transport.channel(6)
        result = server.submit()
        channel.answer(channel.wait_for("tools/call"), TEXT)
        result.result(PATIENCE)
        channel.end(exit_code=1)
        assert server.wait_for(GaveUp).retry_in == pytest.approx(60.0)

    def test_one_that_has_answered_a_ping_and_a_listing_alone_waits(self, supervise: Supervise) -> None:
        server = supervise(health_interval=5.0).started()
        restart(server, 0.0)
        server.pass_time(5.0)
        server.transport.channel(2).wait_for("ping")
        server.request(RequestExchange("tools/list"))
        restart(server, 0.5)

    def test_a_restart_that_fails_is_a_failure_like_a_crash_even_at_the_beginning_of_time(
        self, supervise: Supervise
    ) -> None:
        server = supervise(clock=FakeClock(0.0)).started()
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
        assert server.is_answered_by(3, result)

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
        first.end_slowly()
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
        assert server.is_answered_by(2, result)
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
        assert server.is_answered_by(2, result)
        assert server.supervisor.state is ServerState.READY

    def test_noise_is_counted_over_all_generations(self, server: Supervised) -> None:
        server.transport.channel().write(b"hello\n")
        restart(server).write(b"world!")
        assert server.supervisor.condition.unparsed.lines == 2
        assert server.supervisor.condition.unparsed.size == len(b"hello\n") + len(b"world!")
        assert server.supervisor.condition.unparsed.last == "world!"

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
        assert server.is_answered_by(server.transport.starts)

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
