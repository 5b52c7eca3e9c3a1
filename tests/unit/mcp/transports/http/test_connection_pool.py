"""Connections that are idle, and what may use one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from gaia.http import HttpConnection
from gaia.mcp.transports.http.connection_pool import ConnectionPool, IdleConnections
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
    """A pool, its connections, and the names of its threads."""

    def __init__(self, limit: int) -> None:
        self.connections: list[FakeConnection] = []
        self.idle = IdleConnections(self._new_connection)  # type: ignore[arg-type]
        self.pool = ConnectionPool("pool", limit, self.idle)

    def _new_connection(self) -> FakeConnection:
        self.connections.append(FakeConnection())
        return self.connections[-1]

    def used(self) -> FakeConnection:
        """A connection that a job has used, and that is idle now."""
        done = threading.Event()
        self.pool.submit(lambda _: done.set())
        assert done.wait(PATIENCE)
        assert wait_until(lambda: len(self.idle._idle) == len(self.connections))
        return self.connections[-1]

    def borrow(self, borrower: object) -> HttpConnection:
        connection = self.pool.borrow(borrower)
        assert connection is not None
        return connection


@pytest.fixture
def hire(no_leaks: None) -> Iterator[Callable[[int], Setting]]:
    hired: list[Setting] = []

    def make(limit: int) -> Setting:
        hired.append(Setting(limit))
        return hired[-1]

    yield make
    for setting in hired:
        setting.pool.request_close()
        assert setting.pool.join(PATIENCE)
        setting.idle.close()
        assert all(connection.closed for connection in setting.connections)


class TestIdle:
    def test_the_one_that_was_used_last_is_used_next(self, hire: Callable[[int], Setting]) -> None:
        idle = hire(1).idle
        first, second = idle.take(), idle.take()
        idle.put(first)
        idle.put(second)
        again = [idle.take(), idle.take()]
        assert again == [second, first]
        for connection in again:
            idle.put(connection)

    def test_one_that_the_server_has_closed_is_closed_and_not_given(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        first, second = setting.idle.take(), setting.idle.take()
        setting.idle.put(first)
        setting.idle.put(second)
        setting.connections[1].is_connected = False
        assert setting.idle.take_open() is first
        assert setting.connections[1].closed
        assert setting.idle.take_open() is None
        setting.idle.put(first)

    def test_one_whose_response_was_not_read_is_not_kept(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        connection = setting.idle.take()
        setting.connections[0].is_kept = False
        setting.idle.put(connection)
        assert setting.connections[0].closed

    def test_those_that_nothing_has_used_for_long_are_closed_by_the_way(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        for connection in [setting.idle.take() for _ in range(3)]:
            setting.idle.put(connection)
        setting.connections[0].is_stale = setting.connections[1].is_stale = True
        setting.idle.put(setting.idle.take())
        assert [connection.closed for connection in setting.connections] == [True, False, False]
        setting.idle.close_stale()
        assert [connection.closed for connection in setting.connections] == [True, True, False]

    def test_after_the_end_none_is_kept(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        connection = setting.idle.take()
        setting.idle.close()
        setting.idle.put(connection)
        assert setting.connections[0].closed


class TestJobs:
    def test_no_more_are_done_at_once_than_allowed_and_all_in_the_end(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(2)
        go, done, at_once = threading.Event(), [], []
        busy = threading.Semaphore(2)

        def job(connection: object) -> None:
            at_once.append(busy.acquire(blocking=False))
            go.wait(PATIENCE)
            busy.release()
            done.append(connection)

        for _ in range(10):
            setting.pool.submit(job)
        assert wait_until(lambda: len(at_once) == 2)
        go.set()
        assert wait_until(lambda: len(done) == 10)
        assert all(at_once)
        assert len(setting.connections) == 2

    def test_one_after_the_other_they_need_one_connection(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(5)
        for _ in range(20):
            setting.used()
        assert len(setting.connections) == 1

    def test_a_thread_with_nothing_to_do_closes_what_is_stale(
        self, hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        setting = hire(1)
        monkeypatch.setattr(setting.pool._threads, "_idle_seconds", 0.01)
        setting.used().is_stale = True
        assert wait_until(lambda: setting.connections[0].closed or not setting.pool._threads._threads)
        setting.idle.close_stale()
        assert setting.connections[0].closed

    def test_after_the_end_nothing_is_begun(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        begun, go, done = threading.Event(), threading.Event(), []

        def job(_: object) -> None:
            begun.set()
            go.wait(PATIENCE)

        setting.pool.submit(job)
        setting.pool.submit(lambda _: done.append(1))
        assert begun.wait(PATIENCE)
        setting.pool.request_close()
        setting.pool.submit(lambda _: done.append(2))
        assert not setting.pool.join(0.01)
        go.set()
        assert setting.pool.join(PATIENCE)
        assert done == []

    def test_none_is_forgotten_when_a_thread_leaves_in_that_moment(
        self, hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        setting = hire(1)
        monkeypatch.setattr(setting.pool._threads, "_idle_seconds", 0.0)
        done = threading.Semaphore(0)
        for _ in range(500):
            setting.pool.submit(lambda _: done.release())
            assert done.acquire(timeout=PATIENCE)

    def test_none_is_forgotten_when_many_come_at_once(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(2)
        done = threading.Semaphore(0)

        def use() -> None:
            for number in range(200):
                connection = setting.pool.borrow(number) if number % 2 else None
                if connection is None:
                    setting.pool.submit(lambda _: done.release())
                else:
                    setting.pool.give_back(number, connection)
                    done.release()

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(done.acquire(timeout=PATIENCE) for _ in range(800))


class TestWithoutThreads:
    """The system starts no more."""

    def test_the_others_do_the_work(self, hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch) -> None:
        setting = hire(5)
        begun, go, done = threading.Event(), threading.Event(), threading.Semaphore(0)

        def job(_: object) -> None:
            begun.set()
            go.wait(PATIENCE)
            done.release()

        for _ in range(50):
            begun.clear()
            go.clear()
            setting.pool.submit(job)
            assert begun.wait(PATIENCE)
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", no_thread)
                setting.pool.submit(lambda _: done.release())
                # It is done by the thread that is about to have nothing to do.
                go.set()
            assert done.acquire(timeout=PATIENCE)
            assert done.acquire(timeout=PATIENCE)

    def test_without_any_the_pool_says_so(
        self, hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        setting = hire(1)
        connection = setting.idle.take()
        setting.idle.put(connection)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="new thread"):
                setting.pool.submit(lambda _: None)
            assert setting.pool.borrow("caller") is connection, "the job has left nothing behind"
            with pytest.raises(RuntimeError, match="new thread"):
                setting.pool.take_over("caller", connection, lambda _: None)
            setting.pool.give_back("caller", connection)
            assert setting.pool.borrow("caller") is connection
            setting.pool.give_back("caller", connection)


class TestBorrowing:
    def test_there_has_to_be_an_idle_one(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        assert setting.pool.borrow("caller") is None
        used = cast(HttpConnection, setting.used())
        assert setting.pool.borrow("caller") is used
        setting.pool.give_back("caller", used)

    def test_borrowers_count_as_jobs_do(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        setting.used()
        connection = setting.borrow("caller")
        begun = threading.Event()
        setting.pool.submit(lambda _: begun.set())
        assert setting.pool.borrow("other") is None, "a job was first"
        assert not begun.is_set()
        setting.pool.give_back("caller", connection)
        assert begun.wait(PATIENCE)

    def test_while_jobs_run_only_the_rest_is_lent(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(2)
        begun, go = threading.Event(), threading.Event()
        setting.used()

        def job(_: object) -> None:
            begun.set()
            go.wait(PATIENCE)

        spare = setting.idle.take()
        setting.pool.submit(job)
        assert begun.wait(PATIENCE)
        setting.idle.put(spare)
        assert setting.borrow("caller") is spare
        setting.idle.put(setting.idle.take())
        assert setting.pool.borrow("other") is None
        go.set()
        setting.pool.give_back("caller", spare)

    def test_giving_back_twice_is_harmless(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        setting.used()
        setting.pool.give_back("caller", setting.borrow("caller"))
        setting.pool.give_back("caller", None)
        setting.pool.give_back("other", setting.borrow("other"))

    def test_a_thread_takes_over_with_the_same_connection(self, hire: Callable[[int], Setting]) -> None:
        setting = hire(1)
        setting.used()
        connection = setting.borrow("caller")
        with_what: list[HttpConnection] = []
        go, done = threading.Event(), threading.Event()

        def go_on(connection: HttpConnection) -> None:
            go.wait(PATIENCE)
            with_what.append(connection)

        setting.pool.take_over("caller", connection, go_on)
        setting.pool.submit(lambda _: done.set())
        assert setting.pool.borrow("other") is None
        go.set()
        assert done.wait(PATIENCE)
        assert with_what == [connection]

    def test_the_end_waits_for_borrowers_but_not_for_long(
        self, hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gaia.mcp.transports.http.connection_pool._BORROWED_SECONDS", 0.05)
        setting = hire(1)
        setting.used()
        connection = setting.borrow("caller")
        setting.pool.request_close()
        assert setting.pool.borrow("other") is None
        # One that interrupted the borrower may wait for this.
        assert setting.pool.join(PATIENCE)
        assert not setting.connections[0].closed
        setting.idle.close()
        setting.pool.give_back("caller", connection)
        assert setting.connections[0].closed
        assert setting.pool._all_returned.is_open


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
