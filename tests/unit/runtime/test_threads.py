"""A named, bounded set of daemon threads for code that may never return."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from gaia.runtime import log, threads
from gaia.runtime.handover import on_engine_thread
from gaia.runtime.locks import Latch
from gaia.runtime.threads import DaemonPool, EngineThread, PoolExhausted, with_pauses
from tests.interruption import raise_within
from tests.unit.runtime.conftest import no_threads, run_program
from tests.unspeakable import Unspeakable
from tests.waiting import PATIENCE, wait_until

MakePool = Callable[..., DaemonPool]


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Something for tasks to wait for; set at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def make(no_leaks: None, held: threading.Event) -> Iterator[MakePool]:
    pools: list[DaemonPool] = []

    def make_pool(max_threads: int = 2, **options: object) -> DaemonPool:
        pools.append(DaemonPool("test", max_threads, **options))  # type: ignore[arg-type]
        return pools[-1]

    yield make_pool
    held.set()
    for pool in pools:
        assert pool.close(PATIENCE)


def names() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("test-"))


def occupy(pool: DaemonPool, held: threading.Event, threads: int) -> None:
    """Have so many threads of the pool wait for `held`."""
    entered = threading.Barrier(threads + 1)

    def hold() -> None:
        entered.wait(PATIENCE)
        held.wait(PATIENCE)

    for _ in range(threads):
        pool.submit(hold)
    entered.wait(PATIENCE)


class TestThreads:
    def test_they_are_daemons_called_after_the_pool_and_none_is_started_before_there_is_a_task(
        self, make: MakePool
    ) -> None:
        pool, seen = make(), list[tuple[str, bool]]()
        assert names() == []
        pool.submit(lambda: seen.append((threading.current_thread().name, threading.current_thread().daemon)))
        assert pool.drain(PATIENCE)
        assert seen == [("test-1", True)]

    @pytest.mark.parametrize("threads", [1, 2])
    def test_no_more_run_than_allowed_and_all_tasks_in_the_end_by_one_thread_in_their_order(
        self, threads: int, make: MakePool, held: threading.Event
    ) -> None:
        pool, seen = make(threads), list[int]()
        occupy(pool, held, threads)
        for number in range(100):
            pool.submit(functools.partial(seen.append, number))
        assert names() == ["test-1", "test-2"][:threads]
        held.set()
        assert pool.drain(PATIENCE)
        assert (seen if threads == 1 else sorted(seen)) == list(range(100))

    def test_the_one_that_was_busy_last_gets_the_next_task(self, make: MakePool) -> None:
        pool = make(5)
        for _ in range(20):
            done = threading.Event()
            pool.submit(done.set)
            assert done.wait(PATIENCE)
            assert wait_until(lambda: len(pool._idle) == 1)
        assert names() == ["test-1"]

    def test_one_that_has_nothing_to_do_ends(self, make: MakePool) -> None:
        pool, seen = make(idle_seconds=0.01), list[str]()
        for _ in range(3):
            pool.submit(lambda: seen.append(threading.current_thread().name))
            assert wait_until(lambda: not pool._threads)
        assert seen == ["test-1"] * 3

    def test_those_of_an_engine_run_no_code_of_the_application(self, make: MakePool) -> None:
        seen: list[bool] = []
        for is_engine in (True, False):
            pool = make(1, is_engine=is_engine)
            pool.submit(lambda: seen.append(on_engine_thread()))
            assert pool.drain(PATIENCE)
        assert seen == [True, False]

    @pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
    def test_what_a_task_raises_is_logged_and_ends_no_thread(
        self, make: MakePool, caplog: pytest.LogCaptureFixture, error: type[BaseException]
    ) -> None:
        def fail() -> None:
            raise error("broken")

        pool, seen = make(1), list[str]()
        with caplog.at_level(logging.ERROR, "gaia"):
            pool.submit(fail)
            pool.submit(lambda: seen.append(threading.current_thread().name))
            assert pool.drain(PATIENCE)
        assert seen == ["test-1"]
        assert [record.message for record in caplog.records] == [
            f"task_failed pool='test' error=\"{error.__name__}('broken')\""
        ]

    @pytest.mark.parametrize("error", [ValueError, SystemExit])
    def test_nor_does_what_a_log_handler_raises_then(self, make: MakePool, error: type[BaseException]) -> None:
        def fail(_: object = None) -> bool:
            raise error

        pool, seen = make(1), list[str]()
        logger = logging.getLogger(threads.__name__)
        logger.addFilter(fail)
        try:
            pool.submit(fail)
            pool.submit(lambda: seen.append(threading.current_thread().name))
            assert pool.drain(PATIENCE)
        finally:
            logger.removeFilter(fail)
        assert seen == ["test-1"]


class TestExhaustion:
    def test_no_more_tasks_wait_than_allowed(self, make: MakePool, held: threading.Event) -> None:
        pool, seen = make(1, max_waiting=1), list[int]()
        occupy(pool, held, 1)
        assert pool.submit(lambda: seen.append(1))
        with pytest.raises(PoolExhausted, match="too many tasks"):
            pool.submit(lambda: seen.append(2))
        held.set()
        assert pool.drain(PATIENCE)
        assert seen == [1]

    def test_a_task_does_not_wait_that_has_a_thread_which_did_not_come_to_run_yet(
        self, make: MakePool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, seen, started = make(2, max_waiting=1), list[int](), list[threading.Thread]()
        with monkeypatch.context() as patch:
            # A lambda, because a method of a list would not be given the thread.
            patch.setattr(threading.Thread, "start", lambda thread: started.append(thread))  # noqa: PLW0108
            for number in range(3):
                assert pool.submit(functools.partial(seen.append, number))
            with pytest.raises(PoolExhausted, match="too many tasks"):
                pool.submit(lambda: seen.append(3))
        for thread in started:
            thread.start()
        assert pool.drain(PATIENCE)
        assert sorted(seen) == [0, 1, 2]

    def test_a_task_that_no_thread_could_run_is_refused(self, make: MakePool) -> None:
        pool, seen = make(), list[int]()
        with no_threads(), pytest.raises(PoolExhausted, match="can't start new thread"):
            pool.submit(lambda: seen.append(1))
        pool.submit(lambda: seen.append(2))
        assert pool.drain(PATIENCE)
        assert seen == [2]

    @pytest.mark.parametrize("following", [[], [2]])
    def test_one_that_is_kept_runs_before_the_next_or_when_the_pool_is_drained(
        self, following: list[int], make: MakePool, caplog: pytest.LogCaptureFixture
    ) -> None:
        pool, seen = make(), list[int]()
        with no_threads(), caplog.at_level(logging.WARNING, "gaia"):
            assert pool.submit(lambda: seen.append(1), keep=True)
        assert "can't start new thread" in caplog.text
        for number in following:
            pool.submit(functools.partial(seen.append, number))
        assert pool.drain(PATIENCE)
        assert seen == [1, *following]

    def test_the_threads_that_run_do_the_work_of_those_that_cannot_be_started(
        self, make: MakePool, held: threading.Event
    ) -> None:
        pool, done = make(5), threading.Event()
        occupy(pool, held, 1)
        with no_threads():
            pool.submit(done.set)
        held.set()
        assert done.wait(PATIENCE)


class TestDraining:
    def test_what_waits_is_done_and_the_threads_end(self, make: MakePool, held: threading.Event) -> None:
        pool, seen = make(1), list[int]()
        occupy(pool, held, 1)
        pool.submit(lambda: seen.append(1))
        assert not pool.drain(0.01)
        held.set()
        assert pool.drain(PATIENCE)
        assert (seen, names()) == ([1], [])

    def test_what_is_submitted_later_does_not_wait_for_a_task_that_is_stuck(
        self, make: MakePool, held: threading.Event
    ) -> None:
        pool, done = make(1), threading.Event()
        occupy(pool, held, 1)
        (stuck,) = pool._threads
        assert not pool.drain(0.01)
        pool.submit(done.set)
        assert done.wait(PATIENCE)
        held.set()
        stuck.join(PATIENCE)
        assert not stuck.is_alive()

    def test_a_task_may_do_it(self, make: MakePool) -> None:
        pool, ended = make(), list[bool]()
        pool.submit(lambda: ended.append(pool.drain(PATIENCE)))
        assert wait_until(lambda: ended == [True])


class TestClosing:
    def test_what_waits_and_what_comes_later_is_dropped(self, make: MakePool, held: threading.Event) -> None:
        pool, seen = make(1), list[int]()
        occupy(pool, held, 1)
        pool.submit(lambda: seen.append(1))
        assert not pool.close()
        assert not pool.submit(lambda: seen.append(2))
        assert names() == ["test-1"]
        held.set()
        assert pool.close(PATIENCE)
        assert (seen, names()) == ([], [])

    @pytest.mark.process
    def test_the_end_of_the_process_waits_for_no_task(self) -> None:
        run_program(
            "import threading; from gaia.runtime.threads import DaemonPool\n"
            "began = threading.Event()\n"
            "DaemonPool('test', 1).submit(lambda: (began.set(), threading.Event().wait()))\n"
            "began.wait()"
        )


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_threads_of_its_own_and_leaves_the_parents_tasks_to_it() -> None:
    program = """
import os, threading
from gaia.runtime.threads import DaemonPool

pool, began, go, seen = DaemonPool("test", 1), threading.Event(), threading.Event(), []
pool.submit(lambda: (began.set(), go.wait()))
began.wait()
pool.submit(lambda: seen.append("parent"))
with pool._lock:
    child = os.fork()
if child == 0:
    pool.submit(lambda: seen.append("child"))
    os._exit(0 if pool.drain(10) and seen == ["child"] else 1)
assert os.waitpid(child, 0)[1] == 0
go.set()
assert pool.drain(10) and seen == ["parent"]
"""
    run_program(program)


def test_an_exception_within_submit_loses_no_thread(make: MakePool) -> None:
    """A signal handler may raise it, at any place."""
    pool = make(1)
    for place in itertools.count():
        done = threading.Event()
        pool.submit(done.set)
        assert done.wait(PATIENCE)
        assert wait_until(lambda: bool(pool._idle))
        if not raise_within(lambda: pool.submit(lambda: None), place, ("gaia/runtime/threads.py",)):
            break
    assert place > 2


def test_an_exception_within_the_start_of_its_only_thread_costs_no_later_task(make: MakePool) -> None:
    """A signal handler may raise it, at any place."""

    def submit() -> None:
        # `Thread.start` raises it instead, if the handler's exception comes while it waits.
        with contextlib.suppress(RuntimeError):
            pool.submit(lambda: None)

    limbo: dict[threading.Thread, threading.Thread] = threading._limbo  # type: ignore[attr-defined]
    for place in itertools.count():
        pool = make(1)
        where = raise_within(submit, place, (threading.__file__, "gaia/runtime/threads.py"))
        done = threading.Event()
        pool.submit(done.set)
        assert done.wait(PATIENCE), where
        if limbo and not wait_until(lambda: not limbo, 0.05):
            # Where `threading` keeps those that are about to start, and one whose start was prevented for ever.
            limbo.clear()
        if not where:
            break
    assert place > 5


def test_a_thread_whose_start_an_exception_interrupts_runs_all_the_same() -> None:
    """A signal handler may raise it, at any place."""

    def start() -> None:
        # `Thread.start` raises it instead, if the handler's exception comes while it waits.
        with contextlib.suppress(RuntimeError):
            thread.start()

    for place in itertools.count():
        ran = Latch()
        thread = EngineThread(ran.open, "test-start")
        where = raise_within(start, place, (threading.__file__,))
        if thread.ident is not None or wait_until(lambda: thread.ident is not None, 0.05):  # noqa: B023
            assert ran.wait(PATIENCE), where
            thread.join(PATIENCE)
        # Where `threading` keeps those that are about to start, and one whose start was prevented for ever.
        threading._limbo.pop(thread, None)  # type: ignore[attr-defined]
        if not where:
            break
    assert place > 5


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, MemoryError, Unspeakable])
def test_its_owner_is_told_of_an_exception(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    told: list[threading.Thread] = []

    def fail() -> NoReturn:
        raise error

    thread = EngineThread(fail, "test-engine", lambda: told.append(threading.current_thread()))
    thread.start()
    thread.join(PATIENCE)
    assert told == [thread]
    assert log.flush(PATIENCE)
    (record,) = caplog.records
    assert record.message.startswith("thread_failed thread='test-engine'")
    assert error.__name__ in record.message
    assert record.threadName == "test-engine"


def test_one_that_ends_by_itself_is_no_failure() -> None:
    told: list[bool] = []
    thread = EngineThread(lambda: told.append(on_engine_thread()), "test-engine", lambda: told.append(False))
    thread.start()
    thread.join(PATIENCE)
    assert told == [True]
    assert thread.daemon


def test_a_thread_with_many_lines_to_read_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    paused_after: list[int] = []
    taken: list[int] = []
    monkeypatch.setattr(threads.time, "sleep", lambda _: paused_after.append(len(taken)))
    for item in with_pauses(range(200)):
        taken += [item]
    assert taken == list(range(200))
    assert paused_after == [64, 128, 192]
    del paused_after[:]
    assert list(with_pauses([1])) == [1]
    assert paused_after == [], "an answer that comes alone is not delayed"
