"""Code of the application on a thread of its own: in order, within bounds, and never in the way."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from gaia.runtime import handover as handover_module
from gaia.runtime.handover import Handover, mark_engine_thread, on_engine_thread
from tests.interruption import raise_within
from tests.unit.runtime.conftest import no_threads
from tests.waiting import PATIENCE, wait_until


class Work:
    """A handover, and all that it reports."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.dropped: list[int] = []
        self.handover = Handover("test-handover", self.errors.append, self.dropped.append)
        self.may_go_on = threading.Event()
        self.done: list[object] = []

    def block(self) -> None:
        """Keep the thread busy until `may_go_on` is set."""
        entered = threading.Event()

        def wait() -> None:
            entered.set()
            self.may_go_on.wait(PATIENCE)

        self.handover.post(wait)
        assert entered.wait(PATIENCE)

    def note(self, what: object) -> Callable[[], None]:
        return lambda: self.done.append(what)

    @property
    def threads(self) -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "test-handover"]


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.may_go_on.set()
    work.handover.flush(PATIENCE)


class TestPost:
    def test_tasks_run_in_order_on_one_thread(self, work: Work) -> None:
        threads = set()
        for number in range(100):
            work.handover.post(lambda number=number: (work.done.append(number), threads.add(threading.get_ident())))
        assert work.handover.flush(PATIENCE)
        assert work.done == list(range(100))
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    def test_it_waits_for_nothing(self, work: Work) -> None:
        work.block()
        work.handover.post(work.note("later"))
        assert work.done == []

    @pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, MemoryError])
    def test_what_a_task_raises_is_reported_and_the_next_one_runs(self, work: Work, error: type[BaseException]) -> None:
        def fail() -> None:
            raise error

        work.handover.post(fail)
        work.handover.post(work.note("next"))
        assert work.handover.flush(PATIENCE)
        assert [type(one) for one in work.errors] == [error]
        assert work.done == ["next"]

    def test_a_report_that_raises_as_well_changes_nothing(self) -> None:
        def fail(*_: object) -> None:
            raise SystemExit

        handover = Handover("test-handover", fail, fail)
        done = threading.Event()
        handover.post(fail)
        handover.post(done.set)
        assert handover.flush(PATIENCE)
        assert done.is_set()

    @pytest.mark.parametrize(("size", "kept"), [(0, 4), (600, 1)])
    def test_what_is_too_much_is_dropped_and_that_is_said_once(
        self, work: Work, monkeypatch: pytest.MonkeyPatch, size: int, kept: int
    ) -> None:
        monkeypatch.setattr(handover_module, "_MAX_TASKS", 5)
        monkeypatch.setattr(handover_module, "_MAX_SIZE", 1000)
        work.block()
        for number in range(10):
            work.handover.post(work.note(number), size)
        work.may_go_on.set()
        assert work.handover.flush(PATIENCE)
        assert work.done == list(range(kept))
        work.handover.post(work.note("again"), size)
        assert work.handover.flush(PATIENCE)
        assert work.done[-1] == "again"
        assert work.dropped == [10 - kept]

    def test_where_no_thread_can_be_started_it_runs_at_once(self, work: Work) -> None:
        with no_threads():
            work.handover.post(lambda: work.done.append(threading.current_thread()))
        assert work.done == [threading.current_thread()]

    def test_the_thread_ends_when_it_has_nothing_to_do(self, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(handover_module, "_IDLE_SECONDS", 0.0)
        work.handover.post(work.note(1))
        for thread in work.threads:
            thread.join(PATIENCE)
        assert work.threads == []
        work.handover.post(work.note(2))
        for thread in work.threads:
            thread.join(PATIENCE)
        assert work.done == [1, 2]

    def test_an_exception_within_post_loses_no_later_task_and_no_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A signal handler may raise it, at any place."""
        monkeypatch.setattr(handover_module, "_IDLE_SECONDS", 0.01)
        for place in itertools.count():
            work = Work()
            where = raise_within(lambda: work.handover.post(work.note(1)), place, ("gaia/runtime/handover.py",))  # noqa: B023
            work.handover.post(work.note(2))
            assert wait_until(lambda: 2 in work.done), where  # noqa: B023
            assert wait_until(lambda: not work.threads), where  # noqa: B023
            if not where:
                break
        assert place > 5

    def test_an_exception_within_the_start_of_its_thread_loses_no_later_task(
        self, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(_: threading.Thread) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                work.handover.post(work.note(1))
        work.handover.post(work.note(2))
        assert work.handover.flush(PATIENCE)
        assert work.done == [2]

    def test_a_task_that_posts_is_no_deadlock(self, work: Work) -> None:
        work.handover.post(lambda: work.handover.post(work.note("inner")))
        assert work.handover.flush(PATIENCE)
        assert work.handover.flush(PATIENCE)
        assert work.done == ["inner"]


class TestRun:
    def test_it_returns_what_the_task_returns_or_raises(self, work: Work) -> None:
        assert work.handover.run(lambda: 42, PATIENCE) == 42
        with pytest.raises(ZeroDivisionError):
            work.handover.run(lambda: 1 // 0, PATIENCE)
        assert work.errors == []

    def test_what_is_stuck_is_waited_for_once_and_one_that_takes_too_long_runs_all_the_same(self, work: Work) -> None:
        work.block()
        assert work.handover.run(work.note(1), 0.01) is None
        assert work.handover.run(work.note(2), PATIENCE) is None
        assert not work.handover.flush(PATIENCE)
        work.may_go_on.set()
        assert wait_until(lambda: bool(work.done))
        assert work.handover.run(lambda: 3, PATIENCE) == 3
        assert work.done == [1]


class TestFlush:
    def test_it_ends_the_thread_and_starts_none_without_anything_to_wait_for(self, work: Work) -> None:
        assert work.handover.flush(PATIENCE)
        assert work.threads == []
        work.handover.post(work.note(1))
        assert work.handover.flush(PATIENCE)
        for thread in work.threads:
            thread.join(PATIENCE)
        assert work.threads == []

    def test_it_does_not_wait_longer_than_it_is_told_to(self, work: Work) -> None:
        work.block()
        assert not work.handover.flush(0.01)

    def test_on_the_thread_itself_it_does_nothing(self, work: Work) -> None:
        work.handover.post(lambda: work.done.append(work.handover.flush(PATIENCE)))
        assert work.handover.flush(PATIENCE)
        assert work.done == [False]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_forked_child_starts_with_nothing_and_works(work: Work) -> None:
    work.block()
    work.handover.post(work.note("parent"))
    child = os.fork()
    if child == 0:
        work.handover.post(work.note("child"))
        os._exit(0 if work.handover.flush(PATIENCE) and work.done == ["child"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_thread_is_an_engine_thread_once_it_is_marked() -> None:
    seen: list[bool] = []

    def run() -> None:
        seen.append(on_engine_thread())
        mark_engine_thread()
        seen.append(on_engine_thread())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert seen == [False, True]
    assert not on_engine_thread()
