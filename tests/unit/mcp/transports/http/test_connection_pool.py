"""Connections that are idle, and what may use one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import IoThread
from gaia.mcp.transports.http.connection_pool import ConnectionLimit, IdleConnections
from tests.waiting import PATIENCE, wait_until


class FakeConnection:
    """Knows whether it is closed."""

    def __init__(self) -> None:
        self.closed = False
        self.is_connected = self.is_kept = True
        self.is_stale = False

    def close(self) -> None:
        self.closed = True


class Setting:
    """The connections of a server, and a limit to their number."""

    def __init__(self, limit: int, io: IoThread, idle_seconds: float) -> None:
        self.connections: list[FakeConnection] = []
        self.idle = IdleConnections(self._new_connection, io, idle_seconds)  # type: ignore[arg-type]
        self.limit = ConnectionLimit(limit, self.idle, io)

    def _new_connection(self) -> FakeConnection:
        self.connections.append(FakeConnection())
        return self.connections[-1]

    def used(self) -> HttpConnection:
        """A connection that is idle now."""
        connection = self.idle.take()
        self.idle.put(connection)
        return connection

    def borrow(self, user: object) -> HttpConnection:
        connection = self.limit.borrow(user)
        assert connection is not None
        return connection

    def enter(self, user: object) -> threading.Event:
        """Is set as soon as the user may begin."""
        begun = threading.Event()
        self.limit.enter(user, begun.set)
        return begun


Setup = Callable[..., Setting]


@pytest.fixture
def setup(io: IoThread) -> Iterator[Setup]:
    made: list[Setting] = []

    def make(limit: int = 1, idle_seconds: float = PATIENCE) -> Setting:
        made.append(Setting(limit, io, idle_seconds))
        return made[-1]

    yield make
    for setting in made:
        setting.limit.close()
        setting.idle.close()
        assert all(connection.closed for connection in setting.connections)


class TestIdle:
    def test_the_one_that_was_used_last_is_used_next(self, setup: Setup) -> None:
        idle = setup().idle
        first, second = idle.take(), idle.take()
        idle.put(first)
        idle.put(second)
        again = [idle.take(), idle.take()]
        assert again == [second, first]
        for connection in again:
            idle.put(connection)

    def test_one_that_the_server_has_closed_is_closed_and_not_given(self, setup: Setup) -> None:
        setting = setup()
        first, second = setting.idle.take(), setting.idle.take()
        setting.idle.put(first)
        setting.idle.put(second)
        setting.connections[1].is_connected = False
        assert setting.idle.take_open() is first
        assert setting.connections[1].closed
        assert setting.idle.take_open() is None
        setting.idle.put(first)

    def test_one_whose_response_was_not_read_is_not_kept(self, setup: Setup) -> None:
        setting = setup()
        connection = setting.idle.take()
        setting.connections[0].is_kept = False
        setting.idle.put(connection)
        assert setting.connections[0].closed

    def test_those_that_nothing_has_used_for_long_are_closed_by_and_by(self, setup: Setup) -> None:
        setting = setup(idle_seconds=0.01)
        for connection in [setting.idle.take() for _ in range(3)]:
            setting.idle.put(connection)
        setting.connections[0].is_stale = setting.connections[1].is_stale = True
        assert wait_until(lambda: setting.connections[1].closed)
        assert setting.connections[0].closed
        assert not setting.connections[2].closed
        setting.connections[2].is_stale = True
        assert wait_until(lambda: setting.connections[2].closed)
        later = setting.used()
        setting.connections[3].is_stale = True
        assert wait_until(lambda: setting.connections[3].closed), later

    def test_after_the_end_none_is_kept(self, setup: Setup) -> None:
        setting = setup()
        connection = setting.idle.take()
        setting.idle.close()
        setting.idle.put(connection)
        assert setting.connections[0].closed


class TestLimit:
    def test_no_more_begin_at_once_than_allowed_and_all_in_the_end(self, setup: Setup) -> None:
        setting = setup(2)
        begun = [setting.enter(user) for user in range(10)]
        for user in range(10):
            assert begun[user].wait(PATIENCE)
            assert sum(one.is_set() for one in begun) <= user + 2
            assert setting.limit.leave(user, None)

    def test_after_the_end_nothing_is_begun(self, setup: Setup) -> None:
        setting = setup()
        assert setting.enter("first").wait(PATIENCE)
        second = setting.enter("second")
        setting.limit.close()
        third = setting.enter("third")
        assert not setting.limit.join(0.01)
        setting.limit.leave("first", None)
        assert setting.limit.join(PATIENCE)
        assert not second.is_set()
        assert not third.is_set()

    def test_none_is_forgotten_when_many_come_at_once(self, setup: Setup) -> None:
        setting, done = setup(2), threading.Semaphore(0)

        def use(name: str) -> None:
            for number in range(200):
                user = (name, number)

                def leave(user: object = user) -> None:
                    setting.limit.leave(user, None)
                    done.release()

                connection = setting.limit.borrow(user) if number % 2 else None
                if connection is None:
                    setting.limit.enter(user, leave)
                else:
                    setting.limit.leave(user, connection)
                    done.release()

        setting.used()
        threads = [threading.Thread(target=use, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(done.acquire(timeout=PATIENCE) for _ in range(800))


class TestBorrowing:
    def test_there_has_to_be_an_idle_one(self, setup: Setup) -> None:
        setting = setup()
        assert setting.limit.borrow("caller") is None
        used = setting.used()
        assert setting.limit.borrow("caller") is used
        setting.limit.leave("caller", used)

    def test_borrowers_count_as_others_do(self, setup: Setup) -> None:
        setting = setup()
        setting.used()
        connection = setting.borrow("caller")
        begun = setting.enter("first")
        assert setting.limit.borrow("other") is None, "another one was first"
        assert not begun.is_set()
        setting.limit.leave("caller", connection)
        assert begun.wait(PATIENCE)
        assert setting.limit.borrow("other") is None
        setting.limit.leave("first", None)
        assert setting.borrow("other") is connection
        setting.limit.leave("other", connection)

    def test_leaving_twice_is_harmless(self, setup: Setup) -> None:
        setting = setup()
        setting.used()
        assert setting.limit.leave("caller", setting.borrow("caller"))
        assert not setting.limit.leave("caller", None)
        assert setting.limit.leave("other", setting.borrow("other"))

    def test_what_is_given_back_after_the_end_is_closed(self, setup: Setup) -> None:
        setting = setup()
        setting.used()
        connection = setting.borrow("caller")
        setting.limit.close()
        assert setting.limit.borrow("other") is None
        setting.idle.close()
        assert not setting.connections[0].closed
        setting.limit.leave("caller", connection)
        assert setting.connections[0].closed
        assert setting.limit.join(0)
