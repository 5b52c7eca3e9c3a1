"""Where user code runs: in order within a lane, beside other lanes, and never in the way of anything."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.supervision import callbacks
from gaia.mcp.supervision.callbacks import CallbackPool, Lane
from tests.tracing import Metering
from tests.unspeakable import Unspeakable
from tests.waiting import PATIENCE


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


def test_lanes_do_not_wait_for_each_other(pool: CallbackPool, held: threading.Event) -> None:
    for _ in range(50):
        pool.lane().post(lambda: held.wait(PATIENCE))
    done = threading.Event()
    pool.lane().post(done.set)
    assert done.wait(PATIENCE)


class TestGroups:
    def test_one_has_no_more_threads_than_its_limit(self, pool: CallbackPool, held: threading.Event) -> None:
        group = pool.group("s", 4)
        for _ in range(20):
            group.lane().post(lambda: held.wait(PATIENCE))
        assert callback_threads() == [f"mcp-test-callbacks-{number}" for number in (1, 2, 3, 4)]

    def test_what_waits_for_a_thread_of_its_group_runs_in_the_end(
        self, pool: CallbackPool, held: threading.Event
    ) -> None:
        group, seen = pool.group("s", 2), list[int]()
        for _ in range(2):
            group.lane().post(lambda: held.wait(PATIENCE))
        for number in range(20):
            group.lane().post(lambda number=number: seen.append(number))  # type: ignore[misc]
        held.set()
        pool.close()
        assert sorted(seen) == list(range(20))

    def test_one_that_is_full_holds_up_no_other(self, pool: CallbackPool, held: threading.Event) -> None:
        full, other = pool.group("full", 2), pool.group("other", 2)
        for _ in range(20):
            full.lane().post(lambda: held.wait(PATIENCE))
        done = [threading.Event(), threading.Event()]
        other.lane().post(done[0].set)
        pool.lane().post(done[1].set)
        assert all(event.wait(PATIENCE) for event in done)

    def test_a_forked_child_has_threads_of_its_own(self, pool: CallbackPool, held: threading.Event) -> None:
        group, done = pool.group("s", 1), threading.Event()
        group.lane().post(lambda: held.wait(PATIENCE))
        group._process = -1
        group.lane().post(done.set)
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


def test_one_that_raises_what_cannot_be_shown_stops_nothing_either(pool: CallbackPool) -> None:
    def fail() -> None:
        raise Unspeakable

    group, done = pool.group("server", 1), threading.Event()
    lane = group.lane()
    lane.post(fail)
    lane.post(done.set)
    assert done.wait(PATIENCE), "the lane goes on"
    done.clear()
    group.lane().post(done.set)
    assert done.wait(PATIENCE), "the group's only thread is free again"


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_a_log_handler_raises_stops_no_lane(pool: CallbackPool, error: type[BaseException]) -> None:
    group, done = pool.group("one", limit=1), threading.Event()

    def fail(_: object = None) -> bool:
        raise error

    lane = group.lane()
    logger = logging.getLogger(callbacks.__name__)
    logger.addFilter(fail)
    try:
        lane.post(fail)
        lane.post(done.set)
        assert done.wait(PATIENCE)
    finally:
        logger.removeFilter(fail)
    done.clear()
    group.lane().post(done.set)
    assert done.wait(PATIENCE)


class TestFarBehind:
    """A lane whose tasks are slower than what comes."""

    @pytest.fixture
    def seen(self) -> list[Any]:
        """What has run, in order."""
        return []

    @pytest.fixture
    def lane(self, pool: CallbackPool, held: threading.Event, seen: list[Any]) -> Lane:
        """One whose first task runs until `held` is set."""
        lane, entered = pool.lane(on_dropped=lambda *what: seen.append(what)), threading.Event()

        def stall() -> None:
            entered.set()
            held.wait(PATIENCE)

        lane.post(stall)
        assert entered.wait(PATIENCE)
        return lane

    def post(self, lane: Lane, seen: list[Any], numbers: range, server: str, size: int = 0) -> None:
        for number in numbers:
            lane.post(lambda number=number: seen.append((server, number)), server, size)  # type: ignore[misc]

    def run_all(self, pool: CallbackPool, held: threading.Event) -> None:
        held.set()
        pool.close()

    def test_the_oldest_tasks_are_dropped_counted_and_that_is_said_once(
        self,
        pool: CallbackPool,
        lane: Lane,
        seen: list[Any],
        held: threading.Event,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        metering: Metering,
    ) -> None:
        monkeypatch.setattr(callbacks, "_MAX_TASKS", 10)
        with caplog.at_level(logging.WARNING, "gaia"):
            self.post(lane, seen, range(15), "s")
        self.run_all(pool, held)
        assert seen == [("s", 5), *(("s", number) for number in range(5, 15))]
        assert [record.message for record in caplog.records] == ["callbacks_dropped server='s'"]
        assert metering.value("gaia.mcp.client.callbacks.dropped", gaia__mcp__server__name="s") == 5

    def test_they_are_bounded_by_their_size_too(
        self, pool: CallbackPool, lane: Lane, seen: list[Any], held: threading.Event
    ) -> None:
        self.post(lane, seen, range(10), "s", size=1024 * 1024)
        self.run_all(pool, held)
        assert seen == [("s", 6), *(("s", number) for number in range(6, 10))]

    def test_one_that_is_too_large_by_itself_is_still_run(
        self, pool: CallbackPool, lane: Lane, seen: list[Any], held: threading.Event
    ) -> None:
        self.post(lane, seen, range(1), "s", size=100 * 1024 * 1024)
        self.run_all(pool, held)
        assert seen == [("s", 0)]

    def test_the_tasks_of_one_server_never_drop_or_hold_up_those_of_another(
        self, pool: CallbackPool, lane: Lane, seen: list[Any], held: threading.Event
    ) -> None:
        self.post(lane, seen, range(3), "quiet")
        self.post(lane, seen, range(20_000), "flooding")
        self.post(lane, seen, range(3, 4), "quiet")
        self.run_all(pool, held)
        assert [what for what in seen if what[0] == "quiet"] == [("quiet", number) for number in range(4)]
        assert seen.index(("quiet", 3)) < 10
        assert [what for what in seen if what[0] == "flooding"][1:] == [
            ("flooding", number) for number in range(10_000, 20_000)
        ]

    def test_a_lane_that_keeps_falling_behind_says_so_when_it_has_caught_up(
        self, pool: CallbackPool, seen: list[Any], held: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(callbacks, "_MAX_TASKS", 2)
        lane, entered, told = (
            pool.lane(on_dropped=lambda *what: seen.append(what)),
            threading.Event(),
            threading.Event(),
        )

        def task(number: int) -> None:
            seen.append(number)
            if number == 3:
                told.set()
                held.wait(PATIENCE)

        def stall() -> None:
            entered.set()
            posted.wait(PATIENCE)

        posted = threading.Event()
        lane.post(stall)
        assert entered.wait(PATIENCE)
        for number in range(5):
            lane.post(lambda number=number: task(number))  # type: ignore[misc]
        posted.set()
        assert told.wait(PATIENCE)
        for number in range(5, 8):
            lane.post(lambda number=number: task(number))  # type: ignore[misc]
        self.run_all(pool, held)
        assert seen == [("", 3), 3, 6, ("", 2), 7]


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
        assert sorted(seen) == [1, 2]

    def test_a_forked_child_leaves_what_was_posted_before_to_its_parent(
        self, pool: CallbackPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lane, seen = pool.lane(), list[str]()
        with monkeypatch.context() as patch:
            patch.setattr(pool, "_run", lambda _: None)
            lane.post(lambda: seen.append("parent"))
        lane._process = -1
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
        lane._process = -1
        lane.post(done.set)
        assert done.wait(PATIENCE)
        gone.ending = True
        held.set()
        gone.join(PATIENCE)
