"""A fresh process takes the place of a ready server without a gap, and the old one finishes its calls."""

from __future__ import annotations

import queue
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.errors import CallCancelled, CallTimeout, MCPError, ServerCrashed, StartFailed
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.rpc.connection import ConnectionState
from gaia.mcp.supervision.context import SupervisionContext
from gaia.mcp.supervision.events import Event, Restarted, ServerLog, ServerState, StateChanged
from gaia.mcp.supervision.generation import Generation
from gaia.runtime import log
from tests.fake_transport import PATIENCE, FakeChannel, FakeTransport, handshake_answers
from tests.supervised import Supervised, restart
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise
from tests.unit.mcp.supervision.test_spare import status, wait_for_standby
from tests.waiting import wait_until

TEXT = {"content": "text"}
DRAIN = 20.0

Outcomes = "queue.SimpleQueue[MCPError | None]"


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return supervise().started()


def replace(server: Supervised) -> Outcomes:
    outcomes: Outcomes = queue.SimpleQueue()
    server.replace(DRAIN, outcomes.put)
    return outcomes


def replaced(server: Supervised) -> FakeChannel:
    """Replace the server, and return the channel of the fresh one."""
    number = server.transport.starts + 1
    assert replace(server).get(timeout=PATIENCE) is None
    return server.transport.channel(number)


class TestHandingOver:
    def test_new_calls_go_to_the_fresh_one_and_calls_in_flight_finish_in_the_old_one(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        early = server.submit()
        request = first.wait_for("tools/call")
        connection = server.supervisor.call_queue.ready
        second = replaced(server)
        assert server.is_answered_by(2)
        assert server.supervisor.condition.pid == second.pid
        assert connection is not None
        assert connection.state is ConnectionState.DRAINING
        assert first.closed_with_grace is None
        assert server.supervisor.in_flight == 1
        # It was looked at, and is going to be looked at again.
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.05)
        first.answer(request, TEXT)
        assert early.result(PATIENCE) == TEXT
        server.pass_time(0.05)
        first.wait_until_closing()
        assert first.closed_with_grace == 2.0
        assert server.supervisor.in_flight == 0

    def test_it_is_no_change_of_the_state_and_no_failure(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        replaced(server)
        first.wait_until_closing()
        assert server.wait_for(Restarted) == Restarted("fake", 2, downtime=0.0, reason="recycled: requested")
        assert server.states == [ServerState.STARTING, ServerState.READY]
        assert server.supervisor.condition.last_error is None
        assert status(server) is None
        server.settle()
        assert server.transport.starts == 2

    def test_no_call_is_without_a_server_meanwhile(self, server: Supervised) -> None:
        del server.transport.answers["initialize"]
        outcomes = replace(server)
        second = server.transport.channel(2)
        opening = second.wait_for("initialize")
        assert server.is_answered_by(1)
        second.answer(opening, {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert outcomes.get(timeout=PATIENCE) is None
        assert server.is_answered_by(2)

    def test_what_is_subscribed_is_set_up_before_it_takes_over(self, server: Supervised) -> None:
        server.subscriptions.add_resource("file:///a")
        server.transport.answers["resources/subscribe"] = lambda _: {}
        second = replaced(server)
        second.wait_for("resources/subscribe")
        server.is_answered_by(2)
        methods = [message["method"] for message in second.received if "id" in message]
        assert methods.index("resources/subscribe") < methods.index("tools/call")

    def test_its_tools_are_those_of_the_fresh_one(self, server: Supervised) -> None:
        server.transport.tools = [{"name": "other"}]
        replaced(server)
        assert server.listings[-1] == [{"name": "other"}]

    def test_a_standby_is_used_and_the_next_one_is_started(self, supervise: Supervise) -> None:
        server = supervise(standby=True).started()
        second = wait_for_standby(server, 2)
        assert replace(server).get(timeout=PATIENCE) is None
        assert server.supervisor.condition.pid == second.pid
        wait_for_standby(server, 3)

    def test_the_fresh_one_is_checked_like_any_other(self, supervise: Supervise) -> None:
        server = supervise(health_interval=30.0).started()
        second = replaced(server)
        server.transport.channel(1).wait_until_closing()
        server.pass_time(30.0)
        second.wait_for("ping")
        assert server.transport.channel(1).requests("ping") == []


class TestFailing:
    def test_the_old_one_goes_on_and_the_failure_is_told(self, server: Supervised) -> None:
        server.transport.start_errors.append(StartFailed("no memory"))
        error = replace(server).get(timeout=PATIENCE)
        assert error is not None
        assert "no memory" in error.message
        assert server.is_answered_by(1)
        server.settle()
        assert server.transport.starts == 1
        assert status(server) is None

    def test_no_retry_is_announced_because_there_will_be_none(
        self, server: Supervised, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.transport.start_errors.append(StartFailed("no memory"))
        assert replace(server).get(timeout=PATIENCE) is not None
        server.settle()
        log.flush()
        messages = [record.getMessage() for record in caplog.records]
        assert not [message for message in messages if "standby_failed" in message]
        assert len([message for message in messages if "server_not_replaced" in message]) == 1

    def test_a_server_that_is_not_ready_is_not_replaced(self, server: Supervised) -> None:
        server.transport.channel(1).hold_closing()
        server.transport.channel(1).end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        error = replace(server).get(timeout=PATIENCE)
        assert error is not None
        assert "restarting" in error.message
        server.transport.channel(1).let_close()

    @pytest.mark.parametrize("code", [1, 0], ids=["crashes", "exits by itself"])
    def test_a_server_that_is_lost_meanwhile_is_restarted_by_it_and_was_not_recycled(
        self, server: Supervised, code: int
    ) -> None:
        del server.transport.answers["initialize"]
        outcomes = replace(server)
        second = server.transport.channel(2)
        opening = second.wait_for("initialize")
        server.transport.channel(1).end(exit_code=code)
        if code:
            server.wait_for_state(ServerState.RESTARTING)
        second.answer(opening, {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert outcomes.get(timeout=PATIENCE) is None
        assert server.is_answered_by(2)
        assert server.transport.starts == 2
        condition = server.supervisor.condition.status(server.statistics, 0)
        assert (condition.recyclings, condition.restarts) == (0, 1)
        reason = f"the server exited with code {code}"
        assert server.wait_for(Restarted).reason == reason, "not why it was to be replaced"

    def test_a_lazy_server_rests_once_whoever_asked_for_a_fresh_process_is_told_that_it_failed(
        self, supervise: Supervise
    ) -> None:
        server = supervise(lazy=True, known=(None, []))
        assert server.supervisor.start()
        assert server.is_answered_by(1)
        del server.transport.answers["initialize"]
        outcomes = replace(server)
        second = server.transport.channel(2)
        second.wait_for("initialize")
        server.transport.channel(1).end(exit_code=1)
        assert wait_until(lambda: server.supervisor.condition.pid == second.pid)
        second.end(exit_code=1)
        error = outcomes.get(timeout=PATIENCE)
        assert error is not None
        assert "exited with code 1" in error.message
        server.clock.advance(0.5)
        server.wait_for_state(ServerState.EXITED)

    def test_the_wait_ends_with_the_first_start_that_fails_after_the_server_was_lost(self, server: Supervised) -> None:
        """Starts that fail rarely enough never open the circuit, so there may be no end of them."""
        del server.transport.answers["initialize"]
        outcomes = replace(server)
        second = server.transport.channel(2)
        second.wait_for("initialize")
        server.transport.channel(1).end(exit_code=1)
        assert wait_until(lambda: server.supervisor.condition.pid == second.pid)
        server.pass_time(30.0)
        error = outcomes.get(timeout=PATIENCE)
        assert error is not None
        assert "not ready within its startTimeout" in error.message
        server.pass_time(0.5)
        server.transport.channel(3).wait_for("initialize")

    @pytest.mark.parametrize("lazy", [False, True])
    def test_both_lost_at_once_the_next_process_is_started_at_once_even_without_calls(
        self, supervise: Supervise, lazy: bool
    ) -> None:
        server = supervise(lazy=lazy).started()
        if not lazy:
            # The next restart but one would not be immediate.
            restart(server)
        number = server.transport.starts
        server.context.negotiation = Negotiation()
        outcomes = replace(server)
        fresh = server.transport.channel(number + 1)
        fresh.wait_for("server/discover")
        fresh.die(exit_code=1)
        server.transport.channel(number).end(exit_code=1)
        assert outcomes.get(timeout=PATIENCE) is None
        assert server.transport.channel(number + 2).pid == server.supervisor.condition.pid

    def test_a_mistake_at_its_end_leaves_no_thread_waiting(
        self, server: Supervised, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = Mock(side_effect=ZeroDivisionError("a mistake"))
        monkeypatch.setattr(server.supervisor._lifecycle.replacements._spans, "ended", broken)
        assert server.in_background(server.supervisor.replace_now, DRAIN).result(PATIENCE)

    def test_a_mistake_at_its_beginning_is_told(self, server: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = Mock(side_effect=ZeroDivisionError("a mistake"))
        monkeypatch.setattr(server.supervisor._lifecycle.replacements, "ask", broken)
        assert not server.in_background(server.supervisor.replace_now, DRAIN).result(PATIENCE)

    def test_a_mistake_while_it_takes_over_leaves_nothing_behind(self, server: Supervised) -> None:
        def break_down(event: Event) -> None:
            if isinstance(event, Restarted):
                server.reactions.remove(break_down)
                raise ZeroDivisionError("a mistake")

        server.reactions.append(break_down)
        replace(server)
        server.wait_for(StateChanged, lambda event: event.new is ServerState.READY and event.generation == 3)
        for number in (1, 2):
            server.transport.channel(number).wait_until_closing()
        assert server.is_answered_by(3)

    def test_stopping_is_told(self, server: Supervised) -> None:
        del server.transport.answers["initialize"]
        outcomes = replace(server)
        server.transport.channel(2).wait_for("initialize")
        server.supervisor.stop()
        assert outcomes.get(timeout=PATIENCE) is not None
        assert server.transport.channel(2).closed_with_grace is not None


class TestAnotherConfiguration:
    def test_it_holds_from_the_moment_on_when_the_fresh_process_takes_over(self, server: Supervised) -> None:
        other, candidate = reconfigured(server, max_pending=7)
        server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN).result(PATIENCE)
        assert server.adoptions == [candidate]
        assert server.context.transport is other
        assert server.supervisor.call_queue.max_pending == 7
        call = server.submit()
        other.channel(1).answer(other.channel(1).wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT
        assert server.wait_for(Restarted).reason == "recycled: reconfigured"
        # What follows is done with it, too.
        other.channel(1).end(exit_code=1)
        assert other.channel(2)

    def test_one_that_cannot_be_started_changes_nothing(self, server: Supervised) -> None:
        other, candidate = reconfigured(server)
        other.start_errors.append(StartFailed("no such file"))
        (error,) = server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN).result(PATIENCE)
        assert "no such file" in error.message
        assert server.adoptions == []
        assert server.is_answered_by(1)
        assert server.supervisor.replace_now(DRAIN)
        assert server.is_answered_by(2)

    def test_a_stand_by_with_the_former_one_does_not_take_over(self, supervise: Supervise) -> None:
        server = supervise(standby=True).started()
        wait_for_standby(server, 2)
        other, candidate = reconfigured(server)
        server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN).result(PATIENCE)
        assert server.supervisor.condition.pid == other.channel(1).pid
        server.transport.channel(2).wait_until_closing()
        assert other.channel(2), "the next stand-by"

    def test_one_that_follows_another_ends_what_was_started_for_that(self, server: Supervised) -> None:
        first, one = reconfigured(server)
        del first.answers["initialize"]
        waiting = server.in_background(server.supervisor.reconfigure_now, one, DRAIN)
        first.channel(1).wait_for("initialize")
        second, two = reconfigured(server)
        assert server.in_background(server.supervisor.reconfigure_now, two, DRAIN).result(PATIENCE) == [None]
        assert waiting.result(PATIENCE) == [None]
        assert server.adoptions == [two]
        assert server.context.transport is second
        first.channel(1).wait_until_closing()

    def test_a_server_that_is_lost_meanwhile_comes_back_with_it(self, server: Supervised) -> None:
        other, candidate = reconfigured(server)
        del other.answers["initialize"]
        waiting = server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN)
        hello = other.channel(1).wait_for("initialize")
        server.transport.channel(1).end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        other.channel(1).answer(hello, handshake_answers()["initialize"](hello))
        assert waiting.result(PATIENCE) == [None]
        assert server.adoptions == [candidate]

    def test_a_server_that_waits_for_its_next_start_is_started_at_once(self, supervise: Supervise) -> None:
        server = supervise().started()
        server.transport.start_errors.extend(StartFailed("gone") for _ in range(2))
        server.transport.channel(1).end(exit_code=1)
        assert wait_until(lambda: server.supervisor.condition.retry_in is not None)
        call = server.submit()
        other, candidate = reconfigured(server)
        assert server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN).result(PATIENCE) == [None]
        other.channel(1).answer(other.channel(1).wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT

    def test_a_server_that_is_being_started_is_started_anew(self, supervise: Supervise) -> None:
        server = supervise()
        del server.transport.answers["initialize"]
        started = server.in_background(server.supervisor.start)
        server.transport.channel(1).wait_for("initialize")
        call = server.submit()
        other, candidate = reconfigured(server)
        assert server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN).result(PATIENCE) == [None]
        assert started.result(PATIENCE)
        other.channel(1).answer(other.channel(1).wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT
        assert server.supervisor.condition.restarts == 0

    def test_a_lazy_server_at_rest_stays_at_rest(self, supervise: Supervise) -> None:
        server = supervise(lazy=True, known=(None, []))
        assert server.supervisor.start()
        other, candidate = reconfigured(server)
        assert server.in_background(server.supervisor.reconfigure_now, candidate, DRAIN).result(PATIENCE) == [None]
        assert server.transport.starts == other.starts == 0
        server.submit()
        assert other.channel(1)

    def test_a_server_that_was_stopped_is_not_started(self, server: Supervised) -> None:
        _, candidate = reconfigured(server)
        server.supervisor.stop()
        assert not server.supervisor.is_running
        assert server.supervisor.reconfigure_now(candidate, DRAIN) == []


def reconfigured(server: Supervised, **changes: Any) -> tuple[FakeTransport, SupervisionContext]:
    """Another configuration of the server, and its transport."""
    transport = FakeTransport()
    context = server.context
    fields = {name: getattr(context, name) for name in context.__struct_fields__}
    candidate = SupervisionContext(**{**fields, "transport": transport, "observer": Observer("fake"), **changes})
    return transport, candidate


class TestDraining:
    def test_what_the_old_one_says_is_heard_except_about_its_tools(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        request = first.wait_for("tools/call")
        replaced(server)
        listings = len(server.listings)
        first.notify("notifications/message", {"level": "info", "data": "almost done"})
        assert server.wait_for(ServerLog).data == "almost done"
        first.notify("notifications/tools/list_changed", {})
        server.settle()
        assert len(server.listings) == listings
        assert len(first.requests("tools/list")) == 1
        first.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT

    def test_a_call_in_it_can_be_cancelled(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        request = first.wait_for("tools/call")
        second = replaced(server)
        # It was looked at, and is going to be looked at again.
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.05)
        assert call.cancel()
        assert first.wait_for("notifications/cancelled")["params"]["requestId"] == request["id"]
        assert second.requests("notifications/cancelled") == []
        server.pass_time(0.05)
        first.wait_until_closing()

    def test_a_call_in_it_has_its_deadline(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit(timeout=0.05)
        first.wait_for("tools/call")
        replaced(server)
        server.pass_time(0.05)
        assert isinstance(call.exception(PATIENCE), CallTimeout)
        first.wait_for("notifications/cancelled")

    def test_a_call_that_takes_too_long_fails_or_is_repeated(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        slow, safe = server.submit(timeout=100.0), server.submit("look", timeout=100.0, repeatable=True)
        first.wait_for("tools/call", 2)
        second = replaced(server)
        server.clock.advance(DRAIN)
        error = slow.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert "replaced" in error.message
        assert "20 s" in error.message
        first.wait_until_closing()
        second.answer(second.wait_for("tools/call"), TEXT)
        assert safe.result(PATIENCE) == TEXT

    def test_its_end_is_no_loss(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        first.wait_for("tools/call")
        replaced(server)
        first.end(exit_code=1)
        error = call.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert "exited with code 1" in error.message
        assert server.is_answered_by(2)
        assert server.states == [ServerState.STARTING, ServerState.READY]

    def test_a_call_that_it_has_not_read_goes_to_the_fresh_one_when_it_has_ended(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.stop_reading()
        unread = server.submit(timeout=100.0)
        second = replaced(server)
        first.hold_closing()
        server.clock.advance(DRAIN)
        first.wait_until_closing()
        server.settle()
        assert second.requests("tools/call") == []
        first.let_close()
        second.answer(second.wait_for("tools/call"), TEXT)
        assert unread.result(PATIENCE) == TEXT
        assert first.requests("tools/call") == []

    def test_or_as_soon_as_nothing_more_is_written_to_the_old_one(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.stop_reading()
        unread = server.submit(timeout=100.0)
        second = replaced(server)
        first.writes_until_closed = False
        first.hold_closing()
        server.clock.advance(DRAIN)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert unread.result(PATIENCE) == TEXT
        first.let_close()
        assert first.requests("tools/call") == []

    def test_the_fresh_one_may_be_lost_meanwhile(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        request = first.wait_for("tools/call")
        replaced(server).end(exit_code=1)
        server.wait_for(Restarted, lambda event: event.generation == 3)
        first.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT
        assert server.is_answered_by(3)

    def test_a_call_that_comes_back_when_the_server_has_failed_is_refused(self, supervise: Supervise) -> None:
        server = supervise().started()
        first = server.transport.channel(1)
        first.stop_reading()
        unread = server.submit(timeout=100.0)
        second = replaced(server)
        server.transport.start_errors.extend(StartFailed("no memory") for _ in range(10))
        second.end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        server.supervisor.stop()
        assert isinstance(unread.exception(PATIENCE), CallCancelled)

    def test_stopping_ends_all_of_it(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        first.wait_for("tools/call")
        second = replaced(server)
        server.supervisor.stop()
        assert isinstance(call.exception(PATIENCE), CallCancelled)
        assert first.closed_with_grace is not None
        assert second.closed_with_grace is not None
        assert server.supervisor.in_flight == 0

    def test_a_mistake_while_stopping_does_not_keep_its_calls_waiting(
        self, server: Supervised, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        first.wait_for("tools/call")
        replaced(server)
        monkeypatch.setattr(Generation, "lose", Mock(side_effect=ZeroDivisionError))
        server.supervisor.stop()
        assert isinstance(call.exception(PATIENCE), CallCancelled)
        assert first.closed_with_grace is not None


class TestFinishing:
    def test_a_server_that_is_stopped_may_finish_its_calls(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit()
        request = channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 60.0)
        server.wait_for_state(ServerState.CLOSED)
        with pytest.raises(MCPError, match="it was disconnected") as refused:
            server.submit().result(PATIENCE)
        assert refused.value.delivery == "not_sent"
        assert channel.closed_with_grace is None
        channel.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT
        server.pass_time(0.05)
        stopped.result(PATIENCE)

    def test_it_has_so_much_time(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit(timeout=1000.0)
        channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 20.0)
        server.wait_for_state(ServerState.CLOSED)
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.05)
        server.clock.advance(20.0)
        with pytest.raises(MCPError, match="within 20 s"):
            call.result(PATIENCE)
        stopped.result(PATIENCE)

    def test_stopping_it_again_without_time_ends_it_at_once(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit(timeout=1000.0)
        channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 3600.0)
        server.wait_for_state(ServerState.CLOSED)
        server.supervisor.request_stop(3600.0)
        server.supervisor.stop()
        with pytest.raises(MCPError, match="is closed"):
            call.result(PATIENCE)
        stopped.result(PATIENCE)

    def test_an_exception_in_the_middle_does_not_start_it_again(self, server: Supervised) -> None:
        outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()
        channel = server.transport.channel(1)
        call = server.submit(timeout=1000.0)
        channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 3600.0)
        server.wait_for_state(ServerState.CLOSED)

        def broken(_: object) -> None:
            outcomes.put(None)
            raise RuntimeError("broken")

        # It is refused, because the server is closed, and the one who asked cannot take that.
        server.replace(1.0, broken)
        outcomes.get(timeout=PATIENCE)
        with pytest.raises(MCPError):
            call.result(PATIENCE)
        stopped.result(PATIENCE)
        assert server.transport.starts == 1
