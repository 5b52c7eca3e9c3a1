"""Where user code runs: in order within a lane, beside other lanes, and never in the way of anything."""

import logging
import threading
from collections.abc import Iterator

import pytest

from gaia.mcp.client.supervision import callbacks
from gaia.mcp.client.supervision.callbacks import CallbackPool

PATIENCE = 10.0


@pytest.fixture
def pool() -> Iterator[CallbackPool]:
    pool = CallbackPool("test")
    yield pool
    pool.close()


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Something for callbacks to wait for; set at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def callback_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if "callbacks" in thread.name)


def test_tasks_of_a_lane_run_in_order_one_at_a_time(pool: CallbackPool) -> None:
    lane, seen, running = pool.lane(), list[int](), threading.Lock()

    def task(number: int) -> None:
        assert running.acquire(blocking=False), "two tasks of a lane at once"
        seen.append(number)
        running.release()

    for number in range(1000):
        lane.post(lambda number=number: task(number))  # type: ignore[misc]
    pool.close()
    assert seen == list(range(1000))


def test_tasks_run_on_threads_with_telling_names(pool: CallbackPool) -> None:
    names: list[str] = []
    pool.lane().post(lambda: names.append(threading.current_thread().name))
    pool.close()
    assert names == ["mcp-test-callbacks-1"]


def test_there_are_no_threads_before_there_is_something_to_do(pool: CallbackPool) -> None:
    pool.lane()
    assert callback_threads() == []


def test_there_are_never_more_than_four(pool: CallbackPool, held: threading.Event) -> None:
    for _ in range(20):
        pool.lane().post(lambda: held.wait(PATIENCE))
    assert callback_threads() == [f"mcp-test-callbacks-{number}" for number in (1, 2, 3, 4)]


def test_lanes_do_not_wait_for_each_other(pool: CallbackPool, held: threading.Event) -> None:
    for _ in range(3):
        pool.lane().post(lambda: held.wait(PATIENCE))
    done = threading.Event()
    pool.lane().post(done.set)
    assert done.wait(PATIENCE)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_task_that_raises_is_logged_and_stops_nothing(
    pool: CallbackPool, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error("broken")

    lane, done = pool.lane(), threading.Event()
    with caplog.at_level(logging.ERROR, "gaia"):
        lane.post(fail)
        lane.post(done.set)
        assert done.wait(PATIENCE)
    assert [record.message for record in caplog.records] == [f"callback_failed error=\"{error.__name__}('broken')\""]


def test_a_lane_that_falls_far_behind_loses_its_oldest_tasks_and_says_so(
    pool: CallbackPool, held: threading.Event, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "_LANE_TASKS", 10)
    lane, seen, entered = pool.lane(), list[int](), threading.Event()

    def stall() -> None:
        entered.set()
        held.wait(PATIENCE)

    lane.post(stall)
    assert entered.wait(PATIENCE)
    with caplog.at_level(logging.WARNING, "gaia"):
        for number in range(15):
            lane.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    held.set()
    pool.close()
    assert seen == list(range(5, 15))
    assert [record.message for record in caplog.records] == ["callback_dropped"] * 5


class TestClosing:
    def test_it_runs_what_was_posted_and_ends_the_threads(self, pool: CallbackPool, held: threading.Event) -> None:
        seen: list[int] = []
        lane = pool.lane()
        lane.post(lambda: held.wait(PATIENCE))
        lane.post(lambda: seen.append(1))
        held.set()
        pool.close()
        assert seen == [1]
        assert callback_threads() == []

    def test_it_may_be_done_twice(self, pool: CallbackPool) -> None:
        pool.lane().post(lambda: None)
        pool.close()
        pool.close()

    def test_what_is_posted_later_runs_all_the_same(self, pool: CallbackPool) -> None:
        lane, seen = pool.lane(), list[int]()
        lane.post(lambda: seen.append(1))
        pool.close()
        lane.post(lambda: seen.append(2))
        pool.close()
        assert seen == [1, 2]

    def test_a_callback_may_do_it(self, pool: CallbackPool) -> None:
        done = threading.Event()

        def close() -> None:
            pool.close()
            done.set()

        pool.lane().post(close)
        assert done.wait(PATIENCE)

    def test_it_does_not_wait_for_long_for_user_code_that_never_returns(
        self, pool: CallbackPool, held: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(callbacks, "_JOIN_SECONDS", 0.01)
        entered = threading.Barrier(5)

        def stall() -> None:
            entered.wait(PATIENCE)
            assert held.wait(PATIENCE)

        for _ in range(4):
            pool.lane().post(stall)
        entered.wait(PATIENCE)
        pool.close()
        assert len(callback_threads()) == 4

    def test_a_thread_that_was_stuck_then_ends_too(
        self, pool: CallbackPool, held: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entered = threading.Event()

        def stall() -> None:
            entered.set()
            held.wait(PATIENCE)

        pool.lane().post(stall)
        assert entered.wait(PATIENCE)
        (stuck,) = [thread for thread in threading.enumerate() if "callbacks" in thread.name]
        monkeypatch.setattr(callbacks, "_JOIN_SECONDS", 0.01)
        pool.close()
        pool.lane().post(lambda: None)
        held.set()
        stuck.join(PATIENCE)
        assert not stuck.is_alive()


class TestWithoutThreads:
    """The interpreter starts no new threads once it is shutting down, and the system none when there are too many."""

    def test_posting_does_not_fail(
        self, pool: CallbackPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        lane, seen = pool.lane(), list[int]()
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "gaia"):
            patch.setattr(threading.Thread, "start", refuse)
            lane.post(lambda: seen.append(1))
        assert "can't start new thread" in caplog.text
        # The next one that can be started sees to what is there.
        pool.lane().post(lambda: seen.append(2))
        pool.close()
        assert seen == [1, 2]

    def test_a_forked_child_leaves_what_was_posted_before_to_its_parent(
        self, pool: CallbackPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lane, seen = pool.lane(), list[str]()
        with monkeypatch.context() as patch:
            patch.setattr(pool, "schedule", lambda _: None)
            lane.post(lambda: seen.append("parent"))
        lane._scheduled_in = -1
        lane.post(lambda: seen.append("child"))
        pool.close()
        assert seen == ["child"]

    def test_threads_that_are_gone_are_replaced(self, pool: CallbackPool, held: threading.Event) -> None:
        """As it is in a forked child, in which a lane's thread is gone in the middle of a task."""
        lane, entered, done = pool.lane(), threading.Barrier(2), threading.Event()

        def stall() -> None:
            entered.wait(PATIENCE)
            held.wait(PATIENCE)

        lane.post(stall)
        entered.wait(PATIENCE)
        (gone,) = pool._threads._threads
        pool._threads._after_fork()
        lane._scheduled_in = -1
        lane.post(done.set)
        assert done.wait(PATIENCE)
        gone.ending = True
        held.set()
        gone.join(PATIENCE)
