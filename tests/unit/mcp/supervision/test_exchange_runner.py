"""Exchanges that go on by events: what is sent, what is asked of whom, and what is dropped."""

import itertools
from typing import Any

import pytest

from gaia.mcp.errors import CallTimeout, JsonRpcError, MCPError
from gaia.mcp.protocol.exchange import Exchange, Notify, Send
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.exchange_runner import CallAnswered, RunExchange
from gaia.testing import FakeClock
from tests.fake_transport import FakeChannel


class Table:
    """One connection, and exchanges on it that go on when the test says so."""

    def __init__(self, clock: FakeClock) -> None:
        self.connection = Connection(
            "fake", 1, clock, max_pending=1, on_notification=lambda _: None, on_ended=lambda _: None
        )
        self.channel = FakeChannel(self.connection, 1, {})
        self.connection.channel = self.channel
        self.watched: list[Call] = []
        self.answered: list[CallAnswered] = []
        self.results: list[Any] = []
        self.errors: list[MCPError] = []
        self.run_exchange = RunExchange(
            self.connection,
            clock,
            30.0,
            itertools.count(1).__next__,
            self.watched.append,
            self.answered.append,
        )

    def begin(self, exchange: Exchange[Any]) -> None:
        self.run_exchange(exchange, self.results.append, self.errors.append)

    def go_on(self) -> None:
        while self.answered:
            self.answered.pop(0)()


@pytest.fixture
def table(fake_clock: FakeClock) -> Table:
    return Table(fake_clock)


def two_questions() -> Exchange[list[Any]]:
    first = yield Send("one", {"a": 1})
    yield Notify("between", {"b": 2})
    second = yield Send("two", timeout=5.0)
    return [first, second]


def test_an_exchange_goes_on_answer_by_answer(table: Table) -> None:
    table.begin(two_questions())
    table.channel.answer(table.channel.wait_for("one"), {"n": 1})
    assert table.channel.requests("two") == []
    table.go_on()
    assert table.channel.requests("between")[0]["params"] == {"b": 2}
    table.channel.answer(table.channel.wait_for("two"), {"n": 2})
    table.go_on()
    assert table.results == [[{"n": 1}, {"n": 2}]]
    assert table.errors == []


def test_one_without_questions_is_over_at_once(table: Table) -> None:
    def nothing() -> Exchange[str]:
        return "done"
        yield

    table.begin(nothing())
    assert table.results == ["done"]


def test_an_error_goes_to_the_exchange_which_may_know_what_to_do(table: Table) -> None:
    def forgiving() -> Exchange[str]:
        try:
            yield Send("one")
        except JsonRpcError as error:
            return f"was told {error.message}"
        return "was told nothing"

    table.begin(forgiving())
    table.channel.answer_error(table.channel.wait_for("one"), -1, "no")
    table.go_on()
    assert table.results == ["was told no"]


def test_an_error_that_it_does_not_know_ends_it(table: Table) -> None:
    table.begin(two_questions())
    table.channel.answer_error(table.channel.wait_for("one"), -1, "no")
    table.go_on()
    assert [error.message for error in table.errors] == ["no"]
    assert table.channel.requests("two") == []


def test_steps_share_the_time_of_the_whole_unless_they_have_their_own(table: Table, fake_clock: FakeClock) -> None:
    table.begin(two_questions())
    assert table.watched[0].deadline == fake_clock.monotonic() + 30.0
    fake_clock.advance(29.0)
    table.channel.answer(table.channel.wait_for("one"), {})
    table.go_on()
    assert table.watched[1].deadline == fake_clock.monotonic() + 5.0

    def late() -> Exchange[None]:
        yield Send("one")
        yield Send("three")

    table.begin(late())
    began = fake_clock.monotonic()
    fake_clock.advance(40.0)
    table.channel.answer(table.channel.wait_for("one", 2), {})
    table.go_on()
    assert began + 30.0 <= table.watched[3].deadline == fake_clock.monotonic()


def test_its_questions_come_through_where_calls_would_be_refused(table: Table) -> None:
    for _ in range(3):
        table.begin(two_questions())
    assert len(table.channel.requests("one")) == 3


@pytest.mark.parametrize("answered", [True, False])
def test_the_outcome_is_dropped_when_the_connection_is_lost_meanwhile(table: Table, answered: bool) -> None:
    table.begin(two_questions())
    if answered:
        table.channel.answer(table.channel.wait_for("one"), {})
    for call in table.connection.close():
        call.finish(error=CallTimeout("lost"))
    table.go_on()
    assert (table.results, table.errors) == ([], [])
    assert table.channel.requests("two") == []


def test_one_that_is_begun_on_a_lost_connection_comes_to_nothing(table: Table) -> None:
    table.connection.close()
    table.begin(two_questions())
    table.go_on()
    assert (table.results, table.errors) == ([], [])
