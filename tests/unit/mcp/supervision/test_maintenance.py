"""Looking after a ready server: its signs of life, and what becomes of what it says unasked."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.errors import CallTimeout, Overloaded, ServerCrashed
from gaia.mcp.supervision.events import Event, Restarted, ServerLog, ServerState
from tests.fake_transport import FakeChannel
from tests.supervised import Supervised
from tests.waiting import PATIENCE

Supervise = Callable[..., Supervised]

TEXT = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture
def watched(supervise: Supervise) -> Supervised:
    """A ready server that is asked for a sign of life after 30 s of silence, and has 10 s to give it."""
    return supervise(health_interval=30.0, health_timeout=10.0).started()


def silence(channel: FakeChannel) -> None:
    channel.take_over("ping")
    channel.take_over("tools/list")


def assert_is_killed(server: Supervised) -> None:
    """The silence of the server is counted from now on; it is killed after two silences, and restarted."""
    channel = server.transport.channel(server.transport.starts)
    channel.wait_for("ping")
    server.pass_time(10.0)
    channel.wait_for("tools/list", len(channel.requests("tools/list")) or 1)
    server.pass_time(10.0)
    assert "hangs" in str(server.wait_for_state(ServerState.RESTARTING).reason)
    channel.wait_until_closing()
    # Who hangs does not leave by itself.
    assert channel.closed_with_grace == 0.0
    server.wait_for(Restarted)


class TestIdleServer:
    def test_it_is_asked_at_each_interval(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        for number in (1, 2, 3):
            watched.pass_time(30.0)
            channel.wait_for("ping", number)
        assert watched.states == [ServerState.STARTING, ServerState.READY]

    def test_it_is_not_asked_soon_after_it_has_said_something(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        watched.clock.wait_for_waiter(watched.clock.monotonic() + 30.0)
        watched.clock.advance(20.0)
        result = watched.submit()
        channel.answer(channel.wait_for("tools/call"), TEXT)
        result.result(PATIENCE)
        watched.pass_time(10.0)
        watched.pass_time(30.0)
        channel.wait_for("ping")
        assert len(channel.requests("ping")) == 1

    def test_a_server_that_answers_nothing_is_killed_and_restarted(self, watched: Supervised) -> None:
        silence(watched.transport.channel())
        watched.pass_time(30.0)
        assert_is_killed(watched)
        assert "hangs" in str(watched.supervisor.condition.last_error)

    def test_a_server_that_ignores_ping_but_lists_its_tools_is_left_alone(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        channel.take_over("ping")
        watched.pass_time(30.0)
        channel.wait_for("ping")
        watched.pass_time(10.0)
        channel.wait_for("tools/list", 2)
        watched.settle()
        assert watched.states == [ServerState.STARTING, ServerState.READY]
        assert channel.closed_with_grace is None

    @pytest.mark.parametrize("answer", ["error", "no object"])
    @pytest.mark.parametrize("question", ["first", "second"])
    def test_any_answer_to_either_question_is_a_sign_of_life(
        self, watched: Supervised, question: str, answer: str
    ) -> None:
        channel = watched.transport.channel()
        silence(channel)
        watched.pass_time(30.0)
        asked = channel.wait_for("ping")
        if question == "second":
            watched.pass_time(10.0)
            asked = channel.wait_for("tools/list", 2)
        if answer == "error":
            channel.answer_error(asked, -32601, "what is that?")
        else:
            channel.answer(asked, "pong")
        watched.settle()
        # The next look is at the next interval: nobody waits for an answer.
        watched.clock.wait_for_waiter(watched.clock.monotonic() + (30.0 if question == "first" else 20.0))
        assert watched.states == [ServerState.STARTING, ServerState.READY]

    def test_whatever_it_says_meanwhile_is_a_sign_of_life(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        watched.pass_time(30.0)
        channel.wait_for("ping")
        watched.pass_time(10.0)
        channel.wait_for("tools/list", 2)
        watched.clock.advance(5.0)
        channel.notify("notifications/message", {"data": "still compiling"})
        watched.pass_time(5.0)
        watched.settle()
        assert watched.states == [ServerState.STARTING, ServerState.READY]

    def test_noise_is_none(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        watched.pass_time(30.0)
        channel.wait_for("ping")
        channel.write(b"I am a print statement in a loop\n")
        assert_is_killed(watched)

    def test_an_end_while_it_is_asked_is_an_end_like_any_other(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        watched.pass_time(30.0)
        channel.wait_for("ping")
        channel.end(exit_code=1)
        assert "exited with code 1" in str(watched.wait_for_state(ServerState.RESTARTING).reason)
        watched.wait_for(Restarted)


class TestBusyServer:
    def test_a_server_with_a_call_in_flight_is_left_alone(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        result = watched.submit(timeout=300.0)
        request = channel.wait_for("tools/call")
        for _ in range(9):
            watched.pass_time(30.0)
        assert channel.requests("ping") == []
        channel.answer(request, TEXT)
        assert result.result(PATIENCE) == TEXT

    @pytest.mark.parametrize("make", [Supervised.submit, Supervised.call], ids=["a future", "a thread that waits"])
    def test_after_a_call_that_timed_out_it_is_asked_at_once(
        self, watched: Supervised, make: Callable[..., Any]
    ) -> None:
        silence(watched.transport.channel())
        result = make(watched, timeout=5.0)
        watched.transport.channel().wait_for("tools/call")
        watched.pass_time(5.0)
        assert isinstance(result.exception(PATIENCE), CallTimeout)
        assert_is_killed(watched)

    def test_a_call_that_was_cancelled_says_nothing_about_the_server(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        future = watched.submit()
        channel.wait_for("tools/call")
        assert future.cancel()
        watched.settle()
        assert channel.requests("ping") == []

    def test_it_is_not_asked_while_it_may_still_be_at_an_older_call(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        older = watched.submit(timeout=20.0)
        request = channel.wait_for("tools/call")
        watched.submit(timeout=5.0)
        channel.wait_for("tools/call", 2)
        watched.pass_time(5.0)
        channel.wait_for("notifications/cancelled")
        watched.settle()
        assert channel.requests("ping") == []
        channel.answer(request, TEXT)
        assert older.result(PATIENCE) == TEXT

    def test_many_calls_that_time_out_lead_to_one_question(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        results = [watched.submit(timeout=5.0) for _ in range(20)]
        channel.wait_for("tools/call", 20)
        watched.pass_time(5.0)
        for result in results:
            assert isinstance(result.exception(PATIENCE), CallTimeout)
        watched.settle()
        assert len(channel.requests("ping")) == 1

    def test_progress_is_a_sign_of_life(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        watched.submit(timeout=5.0)
        channel.wait_for("tools/call")
        watched.pass_time(5.0)
        channel.wait_for("ping")
        other = watched.submit(timeout=60.0, on_progress=lambda *_: None)
        request = channel.wait_for("tools/call", 2)
        watched.pass_time(10.0)
        channel.wait_for("tools/list", 2)
        watched.clock.advance(5.0)
        channel.notify("notifications/progress", {"progressToken": request["id"], "progress": 1})
        watched.pass_time(5.0)
        watched.settle()
        channel.answer(request, TEXT)
        assert other.result(PATIENCE) == TEXT
        assert watched.states == [ServerState.STARTING, ServerState.READY]


class TestServerThatDoesNotRead:
    def test_it_is_killed_although_not_even_a_question_can_be_put(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        channel.stop_reading(room=0)
        assert isinstance(watched.submit().exception(PATIENCE), Overloaded)
        watched.pass_time(30.0)
        watched.pass_time(10.0)
        watched.pass_time(10.0)
        assert "hangs" in str(watched.wait_for_state(ServerState.RESTARTING).reason)

    def test_calls_that_it_has_not_read_go_to_the_next_generation(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        written = watched.submit(timeout=5.0)
        channel.wait_for("tools/call")
        channel.stop_reading()
        waiting = watched.submit(timeout=100.0)
        watched.pass_time(5.0)
        assert isinstance(written.exception(PATIENCE), CallTimeout)
        watched.pass_time(10.0)
        watched.pass_time(10.0)
        watched.wait_for_state(ServerState.RESTARTING)
        assert watched.is_answered_by(2, waiting)

    def test_calls_that_it_has_read_fail_when_it_is_killed(self, watched: Supervised) -> None:
        channel = watched.transport.channel()
        silence(channel)
        watched.submit(timeout=5.0)
        younger = watched.submit(timeout=100.0)
        channel.wait_for("tools/call", 2)
        watched.pass_time(5.0)
        assert_is_killed(watched)
        error = younger.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert "hangs" in error.message


class TestNotifications:
    def test_changed_tools_are_listed_again(self, server: Supervised) -> None:
        server.transport.tools = [{"name": "new"}]
        server.transport.channel().notify("notifications/tools/list_changed", {})
        assert server.wait_for_listing(2) == [{"name": "new"}]

    def test_many_changes_during_a_listing_lead_to_one_more(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.take_over("tools/list")
        channel.notify("notifications/tools/list_changed", {})
        request = channel.wait_for("tools/list", 2)
        for _ in range(50):
            channel.notify("notifications/tools/list_changed", {})
            server.settle()
        channel.answer(request, {"tools": [{"name": "old"}]})
        channel.answer(channel.wait_for("tools/list", 3), {"tools": [{"name": "new"}]})
        assert server.wait_for_listing(3) == [{"name": "new"}]
        assert len(channel.requests("tools/list")) == 3

    def test_a_change_during_a_listing_that_fails_is_not_forgotten(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.take_over("tools/list")
        channel.notify("notifications/tools/list_changed", {})
        first = channel.wait_for("tools/list", 2)
        channel.notify("notifications/tools/list_changed", {})
        server.settle()
        channel.answer_error(first, -32603, "busy")
        channel.answer(channel.wait_for("tools/list", 3), {"tools": [{"name": "new"}]})
        assert server.wait_for_listing(2) == [{"name": "new"}]

    @pytest.mark.parametrize("moment", ["before the listing", "during the listing"])
    def test_a_change_before_the_server_is_ready_is_not_forgotten(self, supervise: Supervise, moment: str) -> None:
        server = supervise()
        server.transport.answers.pop("tools/list")
        initialize = server.transport.answers.pop("initialize")
        ready = server.in_background(server.supervisor.start)
        channel = server.transport.channel()
        request = channel.wait_for("initialize")
        if moment == "before the listing":
            channel.notify("notifications/tools/list_changed", {})
        channel.answer(request, initialize(request))
        listing = channel.wait_for("tools/list")
        if moment == "during the listing":
            channel.notify("notifications/tools/list_changed", {})
        server.settle()
        channel.answer(listing, {"tools": [{"name": "old"}]})
        assert ready.result(PATIENCE)
        channel.answer(channel.wait_for("tools/list", 2), {"tools": [{"name": "new"}]})
        assert server.wait_for_listing(2) == [{"name": "new"}]

    def test_log_messages_become_events(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.notify("notifications/message", {"level": "warning", "logger": "db", "data": {"free": 3}})
        assert server.wait_for(ServerLog) == ServerLog("fake", "warning", "db", {"free": 3})
        channel.notify("notifications/message", {"data": "plain"})
        assert server.wait_for(ServerLog) == ServerLog("fake", "info", None, "plain")

    def test_those_that_wait_are_bounded_in_bytes(self, server: Supervised) -> None:
        channel = server.transport.channel()
        entered, go_on = threading.Event(), threading.Event()

        def stall(event: Event) -> None:
            if isinstance(event, ServerLog) and not entered.is_set():
                entered.set()
                assert go_on.wait(PATIENCE)

        server.reactions.append(stall)
        for _ in range(2):
            # Twice: what was read makes room.
            entered.clear()
            go_on.clear()
            server.events.clear()
            channel.notify("notifications/message", {"data": "first"})
            assert entered.wait(PATIENCE)
            for _ in range(500):
                channel.notify("notifications/message", {"data": "x" * 60_000})
            channel.notify("notifications/message", {"data": "last"})
            go_on.set()
            server.settle()
            assert 60 <= len([event for event in server.events if isinstance(event, ServerLog)]) <= 75

    def test_a_flood_of_them_is_bounded_and_hides_no_change_of_tools(self, server: Supervised) -> None:
        channel = server.transport.channel()
        entered, go_on = threading.Event(), threading.Event()

        def stall(event: Event) -> None:
            if isinstance(event, ServerLog) and not entered.is_set():
                entered.set()
                assert go_on.wait(PATIENCE)

        server.reactions.append(stall)
        channel.notify("notifications/message", {"data": 0})
        assert entered.wait(PATIENCE)
        for number in range(50_000):
            channel.notify("notifications/message", {"data": number})
            if number % 10 == 0:
                channel.notify("notifications/tools/list_changed", {})
        assert server.supervisor._loop.pending < 20_000
        go_on.set()
        server.wait_for_listing(2)
