"""A connection that tells when its server has had its calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection, ConnectionState, CountedConnection
from gaia.testing import FakeClock
from tests.unit.mcp.rpc.test_connection import FakeChannel


def call(number: int, **settings: Any) -> Call:
    return Call(number, "tools/call", {}, 0.0, 30.0, **settings)


@pytest.fixture
def reached() -> list[str]:
    return []


@pytest.fixture
def connection(fake_clock: FakeClock, reached: list[str]) -> CountedConnection:
    made = CountedConnection(
        "test", 1, fake_clock, max_pending=1000, on_notification=lambda _: None, on_ended=lambda _: None
    )
    made.channel = FakeChannel()
    made.move_to(ConnectionState.READY)
    made.count(5, lambda: reached.append("limit"))
    return made


def test_it_is_told_once_at_the_last_call(connection: CountedConnection, reached: list[str]) -> None:
    for number in range(1, 5):
        assert connection.submit(call(number))
    assert reached == []
    for number in range(5, 20):
        assert connection.submit(call(number))
    assert reached == ["limit"]


def test_what_the_supervisor_sends_does_not_count(connection: CountedConnection, reached: list[str]) -> None:
    for number in range(1, 20):
        assert connection.submit(call(number, bound=True))
    assert reached == []


def test_a_call_that_goes_elsewhere_does_not_count(connection: CountedConnection, reached: list[str]) -> None:
    list(connection.close())
    assert not any(connection.submit(call(number)) for number in range(1, 20))
    assert reached == []


def test_of_many_threads_one_tells(connection: CountedConnection, reached: list[str]) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda number: connection.submit(call(number)), range(1, 200)))
    assert reached == ["limit"]


def test_without_a_limit_nothing_is_told(fake_clock: FakeClock) -> None:
    connection: Connection = CountedConnection(
        "test", 1, fake_clock, max_pending=10, on_notification=lambda _: None, on_ended=lambda _: None
    )
    connection.channel = FakeChannel()
    connection.move_to(ConnectionState.READY)
    assert connection.submit(call(1))
