"""Where calls enter: to the connection that is ready, into the backlog, or back with the reason."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    MCPError,
    NotConnected,
    Overloaded,
    ServerCrashed,
    ServerUnavailable,
    ToolDenied,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.supervision import call_queue as call_queue_module
from gaia.mcp.supervision.call_queue import CallQueue, error_of_waited, timeout_of_waiting
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeClock
from tests.fake_transport import FakeChannel
from tests.interleaving import interleavings
from tests.interruption import Interruption

WAITING = [ServerState.STARTING, ServerState.READY, ServerState.RESTARTING, ServerState.EXITED]

WANTED = (ServerState.EXITED, ServerState.READY)
"""READY without a connection: the server is on trial."""


class Desk:
    """A call queue, and what is needed to use it."""

    def __init__(self, max_pending: int = 5) -> None:
        self.clock = FakeClock()
        self.max_pending = max_pending
        self.wanted = 0
        self.call_queue = CallQueue(
            "fake", max_pending, itertools.count(1).__next__, self.count_wanted, on_expired=lambda _: None
        )

    def count_wanted(self) -> None:
        self.wanted += 1

    def call(self, *, repeatable: bool = False, bound: bool = False) -> Call:
        now = self.clock.monotonic()
        return Call(self.call_queue.next_id(), "tools/call", None, now, 30.0, repeatable=repeatable, bound=bound)

    def submit(self, *, repeatable: bool = False) -> Call:
        call = self.call(repeatable=repeatable)
        self.call_queue.submit(call)
        return call

    def connection(self) -> tuple[Connection, FakeChannel]:
        connection = Connection(
            "fake",
            1,
            self.clock,
            max_pending=self.max_pending,
            on_notification=lambda _: None,
            on_ended=lambda _: None,
        )
        channel = FakeChannel(connection, 1, {})
        connection.channel = channel
        connection.move_to(ConnectionState.READY)
        return connection, channel

    def admit(self) -> tuple[Connection, FakeChannel]:
        connection, channel = self.connection()
        self.call_queue.move_to(ServerState.READY, None)
        self.call_queue.admit(connection, refusal=lambda tool: None)
        return connection, channel


@pytest.fixture
def desk() -> Desk:
    return Desk()


def ids(channel: FakeChannel) -> list[int]:
    return [request["id"] for request in channel.requests("tools/call")]


class TestSubmitting:
    @pytest.mark.parametrize("state", WAITING)
    def test_a_call_waits_in_states_that_will_change(self, desk: Desk, state: ServerState) -> None:
        desk.call_queue.move_to(state, None)
        assert not desk.submit().ended
        assert len(desk.call_queue) == 1

    @pytest.mark.parametrize(
        ("state", "error", "words"),
        [
            (ServerState.CREATED, NotConnected, "call connect"),
            (ServerState.CLOSED, NotConnected, "out of order"),
            (ServerState.FAILED, ServerUnavailable, "out of order"),
        ],
    )
    def test_a_call_is_refused_at_once_in_others(
        self, desk: Desk, state: ServerState, error: type[MCPError], words: str
    ) -> None:
        if state is not ServerState.CREATED:
            desk.call_queue.move_to(state, "out of order")
        call = desk.submit()
        assert type(call.error) is error
        assert words in call.error.message
        assert call.error.delivery == "not_sent"
        assert len(desk.call_queue) == 0

    @pytest.mark.parametrize(
        ("state", "said"),
        [
            (ServerState.STARTING, "server 'fake' was not ready within 30 s: it is starting"),
            (ServerState.RESTARTING, "server 'fake' was not ready within 30 s: it is restarting"),
            (ServerState.EXITED, "server 'fake' was not ready within 30 s: it has exited"),
            (ServerState.READY, "server 'fake' was busy with other calls for 30 s"),
        ],
    )
    def test_a_call_that_waits_until_its_deadline_is_told_of_the_server(
        self, desk: Desk, state: ServerState, said: str
    ) -> None:
        desk.call_queue.move_to(state, None)
        call = desk.submit()
        assert desk.call_queue.expire(call)
        assert isinstance(call.error, CallTimeout)
        assert call.error.message == said
        assert call.error.delivery == "not_sent"

    def test_a_call_that_was_sent_is_told_of_the_answer(self, desk: Desk) -> None:
        desk.admit()
        call = desk.submit()
        assert desk.call_queue.expire(call)
        assert str(call.error) == "tools/call was not answered within 30 s"

    def test_a_call_goes_to_the_connection_that_is_ready(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        call = desk.submit()
        assert ids(channel) == [call.id]
        assert connection.in_flight == 1

    @pytest.mark.parametrize("state", WANTED)
    def test_a_call_is_announced_to_a_supervisor_that_waits_for_one(self, desk: Desk, state: ServerState) -> None:
        desk.call_queue.move_to(state, None)
        desk.submit()
        assert desk.wanted == 1

    @pytest.mark.parametrize("state", WANTED)
    def test_a_call_that_was_given_up_before_starts_no_server(self, desk: Desk, state: ServerState) -> None:
        desk.call_queue.move_to(state, None)
        call = desk.call()
        call.finish(error=CallCancelled("not wanted"))
        desk.call_queue.submit(call)
        assert (desk.wanted, len(desk.call_queue)) == (0, 0)

    @pytest.mark.parametrize("state", [state for state in WAITING if state not in WANTED])
    def test_other_calls_are_not(self, desk: Desk, state: ServerState) -> None:
        desk.call_queue.move_to(state, None)
        desk.submit()
        assert desk.wanted == 0

    def test_a_call_that_the_connection_does_not_take_any_more_waits(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        desk.call_queue.suspend()
        connection.close()
        call = desk.submit()
        assert not call.ended
        assert ids(channel) == []
        assert len(desk.call_queue) == 1


class TestConnectionThatClosesMeanwhile:
    """Between a caller's look at its state and the call's entry in its table, or right after that entry."""

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_it_does_not_lose_the_call(self, desk: Desk, when: str) -> None:
        connection, channel = desk.admit()

        def close() -> None:
            desk.call_queue.suspend()
            desk.call_queue.take_back(connection, "it exploded")

        class Table(dict[Any, Call]):
            def __setitem__(self, key: Any, call: Call) -> None:
                if when == "before":
                    close()
                super().__setitem__(key, call)
                if when == "after":
                    close()

        connection._in_flight = Table()
        call = desk.submit()
        assert not call.ended
        assert ids(channel) == []
        _, following = desk.admit()
        assert ids(following) == [call.id]

    def test_a_call_that_is_given_up_while_it_enters_leaves_no_trace(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        call = desk.call()

        class Table(dict[Any, Call]):
            def __setitem__(self, key: Any, entering: Call) -> None:
                entering.finish(error=CallCancelled("enough"))
                connection.cancel_call(entering, "enough")
                super().__setitem__(key, entering)

        connection._in_flight = Table()
        desk.call_queue.submit(call)
        assert connection.in_flight == 0
        assert ids(channel) == []


class TestBacklog:
    def test_it_is_bounded(self, desk: Desk) -> None:
        desk.call_queue.move_to(ServerState.STARTING, None)
        for _ in range(desk.max_pending):
            desk.submit()
        refused = desk.submit()
        assert isinstance(refused.error, Overloaded)
        assert refused.error.delivery == "not_sent"
        assert len(desk.call_queue) == desk.max_pending

    def test_calls_that_were_given_up_take_no_room(self, desk: Desk) -> None:
        desk.call_queue.move_to(ServerState.STARTING, None)
        calls = [desk.submit() for _ in range(desk.max_pending)]
        calls[2].finish(error=CallCancelled("enough"))
        assert len(desk.call_queue) == desk.max_pending - 1
        assert not desk.submit().ended

    def test_it_goes_to_the_connection_in_the_order_of_arrival(self, desk: Desk) -> None:
        desk.call_queue.move_to(ServerState.STARTING, None)
        calls = [desk.submit() for _ in range(4)]
        calls[1].finish(error=CallCancelled("enough"))
        _, channel = desk.admit()
        assert ids(channel) == [calls[0].id, calls[2].id, calls[3].id]
        assert len(desk.call_queue) == 0

    @pytest.mark.parametrize("state", WAITING)
    def test_it_stays_in_states_that_will_change(self, desk: Desk, state: ServerState) -> None:
        desk.call_queue.move_to(ServerState.STARTING, None)
        call = desk.submit()
        desk.call_queue.move_to(state, None)
        assert not call.ended


class TestHandingOver:
    """Another supervisor takes over, whose ids are from the same source."""

    def successor(self, desk: Desk) -> tuple[Desk, FakeChannel]:
        other = Desk()
        other.call_queue.next_id = desk.call_queue.next_id
        return other, other.admit()[1]

    def test_calls_that_wait_go_on_there_and_later_ones_too(self, desk: Desk) -> None:
        desk.call_queue.move_to(ServerState.RESTARTING, None)
        waiting, given_up = desk.submit(), desk.submit()
        desk.call_queue.cancel(given_up, CallCancelled("given up"))
        other, channel = self.successor(desk)
        assert desk.call_queue.hand_over(other.call_queue, lambda _: None) == []
        desk.call_queue.move_to(ServerState.CLOSED, "it was replaced")
        late = desk.submit()
        assert ids(channel) == [waiting.id, late.id]
        assert desk.call_queue.cancel(late, CallCancelled("given up"))
        assert channel.requests("notifications/cancelled")[-1]["params"]["requestId"] == late.id
        assert desk.call_queue.expire(waiting)
        assert isinstance(waiting.error, CallTimeout)

    def test_calls_under_way_stay(self, desk: Desk) -> None:
        connection, _ = desk.admit()
        call = desk.submit()
        other, channel = self.successor(desk)
        desk.call_queue.hand_over(other.call_queue, lambda _: None)
        assert connection.has(call)
        assert desk.call_queue.expire(call)
        assert not connection.has(call)
        assert ids(channel) == []

    def test_one_that_a_lost_connection_might_write_waits_until_that_is_closed(self, desk: Desk) -> None:
        connection, former = desk.admit()
        former.stop_reading()
        call = desk.submit()
        desk.call_queue.suspend()
        desk.call_queue.take_back(connection, "it exploded")
        other, channel = self.successor(desk)
        withdrawn = desk.call_queue.hand_over(other.call_queue, lambda _: None)
        assert (withdrawn, ids(channel)) == ([call], [])
        desk.call_queue.move_to(ServerState.CLOSED, "it was replaced")
        other.call_queue.take_over(withdrawn, lambda _: None)
        assert ids(channel) == [call.id]

    def test_at_any_line_of_a_call_it_is_not_lost(self) -> None:
        for place in range(40):
            desk = Desk()
            desk.call_queue.move_to(ServerState.RESTARTING, None)
            other, channel = self.successor(desk)

            def hand_over(desk: Desk = desk, other: Desk = other) -> None:
                desk.call_queue.hand_over(other.call_queue, lambda _: None)
                desk.call_queue.move_to(ServerState.CLOSED, "it was replaced")

            interruption = Interruption(desk.submit, hand_over, place, files=(call_queue_module.__file__,))
            interruption.run()
            assert interruption.error is None
            if interruption.happened:
                assert len(ids(channel)) == 1, interruption.where


class TestTakingBack:
    def lose(self, desk: Desk, connection: Connection) -> bool:
        desk.call_queue.suspend()
        return desk.call_queue.take_back(connection, "it exploded")

    def test_unwritten_calls_come_before_those_that_wait_already(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        channel.stop_reading()
        first, second = desk.submit(), desk.submit()
        desk.call_queue.suspend()
        third = desk.submit()
        assert desk.call_queue.take_back(connection, "it exploded")
        _, following = desk.admit()
        assert ids(following) == [first.id, second.id, third.id]

    def test_an_unwritten_call_that_is_safe_may_still_be_repeated_later(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        channel.stop_reading()
        call = desk.submit(repeatable=True)
        self.lose(desk, connection)
        connection, _ = desk.admit()
        self.lose(desk, connection)
        _, channel = desk.admit()
        assert ids(channel) == [call.id]
        assert not call.ended

    def test_what_belongs_to_the_connection_ends_with_it_and_is_wanted_by_nobody(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        channel.stop_reading()
        call = desk.call(bound=True)
        connection.submit(call)
        assert not self.lose(desk, connection)
        assert isinstance(call.error, ServerCrashed)

    def test_a_call_that_was_given_up_is_wanted_by_nobody(self, desk: Desk) -> None:
        connection, channel = desk.admit()
        channel.stop_reading()
        desk.submit().finish(error=CallCancelled("enough"))
        assert not self.lose(desk, connection)
        assert len(desk.call_queue) == 0

    def test_a_call_that_is_waiting_is_wanted(self, desk: Desk) -> None:
        connection, _ = desk.connection()
        desk.call_queue.move_to(ServerState.RESTARTING, None)
        desk.submit()
        assert desk.call_queue.take_back(connection, "it exploded")


class TestTrial:
    """A server whose circuit was open gets one call at a time."""

    @pytest.fixture
    def waiting(self, desk: Desk) -> list[Call]:
        desk.call_queue.move_to(ServerState.READY, None)
        return [desk.submit() for _ in range(3)]

    def admit_one(self, desk: Desk, connection: Connection, ended: list[Call]) -> Call | None:
        return desk.call_queue.admit_one(connection, lambda _: None, ended.append)

    def test_the_call_that_has_waited_longest_is_sent_and_its_end_told(self, desk: Desk, waiting: list[Call]) -> None:
        connection, channel = desk.connection()
        ended: list[Call] = []
        assert self.admit_one(desk, connection, ended) is waiting[0]
        assert ids(channel) == [waiting[0].id]
        assert (len(desk.call_queue), desk.call_queue.in_flight, ended) == (2, 1, [])
        channel.answer({"id": waiting[0].id}, {})
        assert ended == [waiting[0]]

    def test_new_calls_wait(self, desk: Desk, waiting: list[Call]) -> None:
        connection, channel = desk.connection()
        self.admit_one(desk, connection, [])
        desk.submit()
        assert len(ids(channel)) == 1
        desk.call_queue.admit(connection, refusal=lambda _: None)
        assert len(ids(channel)) == 4

    def test_a_call_that_has_ended_is_no_trial(self, desk: Desk, waiting: list[Call]) -> None:
        waiting[0].finish(error=CallCancelled("enough"))
        assert self.admit_one(desk, desk.connection()[0], []) is waiting[1]

    def test_without_a_waiting_call_there_is_none(self, desk: Desk) -> None:
        assert self.admit_one(desk, desk.connection()[0], []) is None

    def test_a_connection_that_has_closed_leaves_the_call_in_its_place(self, desk: Desk, waiting: list[Call]) -> None:
        connection, _ = desk.connection()
        connection.close()
        assert self.admit_one(desk, connection, []) is None
        assert len(desk.call_queue) == 3

    def test_a_call_whose_answer_was_lost_is_repeated_to_it(self, desk: Desk) -> None:
        desk.call_queue.move_to(ServerState.READY, None)
        call = desk.submit(repeatable=True)
        connection, channel = desk.connection()
        self.admit_one(desk, connection, [])
        connection._in_flight.clear()
        assert desk.call_queue.repeat(call)
        assert len(ids(channel)) == 2


class TestAnyMoment:
    """What the supervisor does at any moment of a submission."""

    def test_a_call_is_sent_once_if_the_server_gets_ready(self) -> None:
        def make() -> tuple[Callable[[], list[Call]], Callable[[], FakeChannel]]:
            desk = Desk()
            desk.call_queue.move_to(ServerState.STARTING, None)
            return lambda: [desk.submit(), desk.submit()], lambda: desk.admit()[1]

        for calls, channel in interleavings(make, call_queue_module):
            assert sorted(ids(channel)) == [call.id for call in calls]

    def test_a_call_is_refused_if_the_server_fails(self) -> None:
        def make() -> tuple[Callable[[], Call], Callable[[], object]]:
            desk = Desk()
            desk.call_queue.move_to(ServerState.STARTING, None)
            return desk.submit, lambda: desk.call_queue.move_to(ServerState.FAILED, "out of order")

        for call, _ in interleavings(make, call_queue_module):
            assert isinstance(call.error, ServerUnavailable)


def test_in_a_forked_child_calls_are_refused(desk: Desk) -> None:
    desk.admit()
    desk.call_queue.after_fork()
    call = desk.submit()
    assert isinstance(call.error, NotConnected)
    assert "fork" in call.error.message


def test_each_call_of_many_threads_ends_once_and_is_written_once_whatever_the_worker_does(switching: None) -> None:
    desk = Desk(max_pending=100_000)
    desk.call_queue.move_to(ServerState.STARTING, None)
    written: list[int] = []

    def submit() -> list[Call]:
        return [desk.submit() for _ in range(300)]

    with ThreadPoolExecutor(4) as threads:
        submitting = [threads.submit(submit) for _ in range(4)]
        while not all(future.done() for future in submitting):
            connection, channel = desk.admit()
            desk.call_queue.suspend()
            desk.call_queue.take_back(connection, "it exploded")
            channel.close(0.0)
            written += ids(channel)
            desk.call_queue.move_to(ServerState.RESTARTING, None)
        calls = [call for future in submitting for call in future.result()]
    desk.call_queue.move_to(ServerState.CLOSED, "the end")
    assert len(written) == len(set(written))
    for call in calls:
        assert isinstance(call.error, ServerCrashed if call.id in written else CallCancelled)
        assert call.error.delivery == ("unknown" if call.id in written else "not_sent")


def error_of(call: Call, denied: MCPError | None = None, *, is_safe: bool = True) -> MCPError | None:
    return error_of_waited(call, "it", lambda _: denied, lambda _: is_safe)


def new_call(*, repeatable: bool = False) -> Call:
    return Call(1, "tools/call", {}, 0.0, 1.0, repeatable=repeatable, tool="add")


def test_a_tool_that_may_not_be_called_any_more() -> None:
    denied = ToolDenied("another definition")
    assert error_of(new_call(), denied) is denied
    assert error_of(Call(1, "tools/list", {}, 0.0, 1.0), denied) is None


def test_a_call_that_was_never_safe_may_be_sent_once() -> None:
    assert error_of(new_call(), is_safe=False) is None


def test_a_tool_that_is_not_safe_any_more_is_not_repeated_later() -> None:
    call = new_call(repeatable=True)
    assert error_of(call, is_safe=False) is None
    assert not call.repeatable


def test_a_second_call_of_a_tool_that_is_not_safe_any_more_is_not_made() -> None:
    call = new_call(repeatable=True)
    call.prepare_repeat(2)
    assert isinstance(error_of(call, is_safe=False), ServerCrashed)
    assert error_of(call) is None


def test_a_call_whose_server_is_not_ready_in_time_says_what_the_server_does() -> None:
    said = str(timeout_of_waiting(new_call(), "it", ServerState.AUTHORIZING))
    assert said == "server 'it' was not ready within 1 s: a person is asked to log in at it"
