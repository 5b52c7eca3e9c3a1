"""Threads that carry out requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from gaia.mcp.client.transports.http.connection_pool import ConnectionPool
from tests.waiting import PATIENCE, wait_until


class FakeConnection:
    """Knows whether it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Setting:
    """A pool, its connections, and the names of its threads."""

    def __init__(self, limit: int) -> None:
        self.connections: list[FakeConnection] = []
        self.pool = ConnectionPool("pool", limit, self._new_connection)  # type: ignore[arg-type]

    def _new_connection(self) -> FakeConnection:
        self.connections.append(FakeConnection())
        return self.connections[-1]


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
        assert all(connection.closed for connection in setting.connections)


def test_no_more_work_is_done_at_once_than_allowed_and_all_of_it_in_the_end(hire: Callable[[int], Setting]) -> None:
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


def test_the_one_that_was_busy_last_is_asked_first(hire: Callable[[int], Setting]) -> None:
    setting = hire(5)
    for number in range(1, 20):
        done = threading.Event()
        setting.pool.submit(lambda _, done=done: done.set())
        assert done.wait(PATIENCE)
        # It becomes idle right after that.
        assert wait_until(lambda: len(setting.pool._threads._idle) == len(setting.connections)), number
    assert len(setting.connections) == 1


def test_one_with_nothing_to_do_leaves(hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch) -> None:
    setting = hire(1)
    monkeypatch.setattr(setting.pool._threads, "_idle_seconds", 0.01)
    done: list[object] = []
    for number in range(1, 4):
        setting.pool.submit(done.append)
        assert wait_until(lambda number=number: len(done) == number and not setting.pool._threads._threads)
    assert len(setting.connections) == 3


def test_after_the_end_nothing_is_begun(hire: Callable[[int], Setting]) -> None:
    setting = hire(1)
    begun, go, done = threading.Event(), threading.Event(), []

    def job(_: object) -> None:
        begun.set()
        go.wait(PATIENCE)

    setting.pool.submit(job)
    setting.pool.submit(done.append)
    assert begun.wait(PATIENCE)
    setting.pool.request_close()
    setting.pool.submit(done.append)
    assert not setting.pool.join(0.01)
    go.set()
    assert setting.pool.join(PATIENCE)
    assert done == []


def test_when_there_are_no_more_threads_the_others_do_the_work(
    hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = hire(5)
    begun, go, done = threading.Event(), threading.Event(), []

    def job(_: object) -> None:
        begun.set()
        go.wait(PATIENCE)

    setting.pool.submit(job)
    assert begun.wait(PATIENCE)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    setting.pool.submit(done.append)
    monkeypatch.undo()
    go.set()
    assert wait_until(lambda: len(done) == 1)


def test_without_any_it_says_so(hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    setting = hire(1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        setting.pool.submit(lambda _: None)
    monkeypatch.undo()


def test_none_is_forgotten_when_a_thread_leaves_in_that_moment(
    hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = hire(1)
    monkeypatch.setattr(setting.pool._threads, "_idle_seconds", 0.0)
    done = threading.Semaphore(0)
    for _ in range(500):
        setting.pool.submit(lambda _: done.release())
        assert done.acquire(timeout=PATIENCE)


def test_none_is_forgotten_when_many_come_at_once(hire: Callable[[int], Setting]) -> None:
    setting = hire(2)
    done = threading.Semaphore(0)

    def submit() -> None:
        for _ in range(200):
            setting.pool.submit(lambda _: done.release())

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(done.acquire(timeout=PATIENCE) for _ in range(800))


def test_none_is_forgotten_that_waited_while_no_thread_could_be_started(
    hire: Callable[[int], Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done by the thread that was about to have nothing to do."""
    setting = hire(2)
    for _ in range(50):
        go, done = threading.Event(), threading.Semaphore(0)

        def job(_: object, go: threading.Event = go, done: threading.Semaphore = done) -> None:
            go.wait(PATIENCE)
            done.release()

        setting.pool.submit(job)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            go.set()
            setting.pool.submit(job)
        assert done.acquire(timeout=PATIENCE)
        assert done.acquire(timeout=PATIENCE)


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
