"""The fake clock that other tests rely on: time passes when they say so, and no thread sleeps through it."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.locks import TimedQueue
from gaia.testing import FakeClock
from gaia.testing import fake_clock as fake_clock_module
from gaia.testing.fake_clock import blocked_loop
from tests.waiting import PATIENCE

Executor = Callable[..., "Future[Any]"]


@pytest.fixture
def run() -> Iterator[Executor]:
    """Call a function in a thread of its own."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def test_time_stands_still_until_exactly_so_much_is_let_pass(fake_clock: FakeClock) -> None:
    before = fake_clock.monotonic()
    assert fake_clock.monotonic() == before
    fake_clock.advance(3600.5)
    assert fake_clock.monotonic() - before == 3600.5


def test_time_does_not_run_backwards(fake_clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="seconds: time does not run backwards, got -1"):
        fake_clock.advance(-1)


def test_a_waiter_for_a_lock_gives_up_when_its_deadline_has_come(fake_clock: FakeClock, run: Executor) -> None:
    lock = threading.Lock()
    lock.acquire()
    deadline = fake_clock.monotonic() + 30
    acquired = run(fake_clock.acquire, lock, deadline)
    fake_clock.wait_for_waiter(deadline)
    fake_clock.advance(29.9)
    assert fake_clock.deadlines() == [deadline]
    fake_clock.advance(0.2)
    assert acquired.result(timeout=PATIENCE) is False


def test_a_waiter_for_a_lock_gets_it_when_it_is_released(fake_clock: FakeClock, run: Executor) -> None:
    lock = threading.Lock()
    lock.acquire()
    acquired = run(fake_clock.acquire, lock, fake_clock.monotonic() + 30)
    lock.release()
    assert acquired.result(timeout=PATIENCE) is True


def test_a_waiter_for_a_queue_gives_up_when_its_deadline_has_come(fake_clock: FakeClock, run: Executor) -> None:
    item = run(fake_clock.get, TimedQueue[str](), fake_clock.monotonic() + 5)
    assert fake_clock.advance_to_next_deadline() == 5
    with pytest.raises(queue.Empty):
        item.result(timeout=PATIENCE)


def test_a_waiter_for_a_queue_gets_what_is_put_into_it(fake_clock: FakeClock, run: Executor) -> None:
    source: TimedQueue[str] = TimedQueue()
    item = run(fake_clock.get, source, None)
    fake_clock.wait_for_waiter(None)
    source.put("letter")
    assert item.result(timeout=PATIENCE) == "letter"


@pytest.mark.parametrize("clock", [FakeClock(), SystemClock()], ids=["fake", "system"])
class TestBothClocks:
    def test_a_deadline_in_the_past_takes_what_is_there_and_does_not_wait(self, clock: Clock) -> None:
        past = clock.monotonic() - 1
        source: TimedQueue[str] = TimedQueue()
        source.put("letter")
        lock = threading.Lock()
        assert clock.get(source, past) == "letter"
        with pytest.raises(queue.Empty):
            clock.get(source, past)
        assert clock.acquire(lock, past) is True
        assert clock.acquire(lock, past) is False

    def test_without_a_deadline_it_takes_what_is_there(self, clock: Clock) -> None:
        source: TimedQueue[str] = TimedQueue()
        source.put("letter")
        assert clock.get(source, None) == "letter"
        assert clock.acquire(threading.Lock(), None) is True


def test_time_passes_until_a_condition_holds(fake_clock: FakeClock, run: Executor) -> None:
    before = fake_clock.monotonic()
    first = run(fake_clock.get, TimedQueue[str](), before + 5)
    second = run(fake_clock.get, TimedQueue[str](), before + 50)
    fake_clock.advance_until(second.done)
    assert fake_clock.monotonic() == before + 50
    for waiter in (first, second):
        with pytest.raises(queue.Empty):
            waiter.result(timeout=PATIENCE)


def test_no_time_passes_for_a_condition_that_holds(fake_clock: FakeClock) -> None:
    before = fake_clock.monotonic()
    fake_clock.advance_until(lambda: True)
    assert fake_clock.monotonic() == before


def test_a_condition_that_does_not_hold_in_time_fails_the_test(fake_clock: FakeClock, run: Executor) -> None:
    before = fake_clock.monotonic()
    source: TimedQueue[str] = TimedQueue()
    waiter = run(fake_clock.get, source, before + 50)
    with pytest.raises(AssertionError, match="the condition does not hold after 49 seconds"):
        fake_clock.advance_until(waiter.done, limit=49)
    source.put("end")
    waiter.result(timeout=PATIENCE)
    assert fake_clock.monotonic() == before


def test_a_condition_for_which_no_thread_waits_fails_the_test(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_clock_module, "_PATIENCE", 0.01)
    with pytest.raises(AssertionError, match=r"the condition does not hold, and threads wait until \[\]"):
        fake_clock.advance_until(lambda: False)


def test_a_task_of_the_loop_that_is_kept_waiting_is_explained(fake_clock: FakeClock) -> None:
    async def main() -> None:
        with pytest.raises(AssertionError, match=r"await asyncio.to_thread\(clock.advance_until, …\)"):
            fake_clock.advance_until(asyncio.ensure_future(asyncio.sleep(0)).done, limit=0)

    source: TimedQueue[str] = TimedQueue()
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(fake_clock.get, source, fake_clock.monotonic() + 5)
        asyncio.run(main())
        source.put("end")
        waiter.result(timeout=PATIENCE)


def test_no_time_passes_while_a_thread_holds_it(fake_clock: FakeClock, run: Executor) -> None:
    before = fake_clock.monotonic()
    waiter = run(fake_clock.get, TimedQueue[str](), before + 5)
    looks: list[float] = []

    def looked_often() -> bool:
        looks.append(fake_clock.monotonic())
        return len(looks) > 3

    with fake_clock.hold():
        fake_clock.advance_until(looked_often)
    assert set(looks) == {before}
    fake_clock.advance_until(waiter.done)


def test_no_advice_about_an_event_loop_is_given_elsewhere() -> None:
    async def in_a_thread() -> str:
        return await asyncio.to_thread(blocked_loop, "clock.advance_until")

    assert blocked_loop("clock.advance_until") == asyncio.run(in_a_thread()) == ""
