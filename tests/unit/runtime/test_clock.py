"""The clock of the system: deadlines are readings of it. What it has in common with the fake one is tested there."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gaia.runtime import rates as module
from gaia.runtime.clock import SystemClock
from gaia.runtime.locks import TimedQueue
from gaia.runtime.rates import EventRate, TokenBucket
from tests.waiting import PATIENCE

CLOCK = SystemClock()


def test_a_lock_is_waited_for_until_the_deadline_and_no_longer() -> None:
    lock = threading.Lock()
    lock.acquire()
    deadline = CLOCK.monotonic() + 0.05
    assert CLOCK.acquire(lock, deadline) is False
    assert deadline <= CLOCK.monotonic() < deadline + PATIENCE


def test_so_is_an_item() -> None:
    deadline = CLOCK.monotonic() + 0.05
    with pytest.raises(queue.Empty):
        CLOCK.get(TimedQueue(), deadline)
    assert deadline <= CLOCK.monotonic() < deadline + PATIENCE


@pytest.mark.parametrize("seconds", [None, PATIENCE])
def test_what_another_thread_gives_ends_the_wait(seconds: float | None) -> None:
    deadline = None if seconds is None else CLOCK.monotonic() + seconds
    lock, source = threading.Lock(), TimedQueue[str]()
    lock.acquire()
    with ThreadPoolExecutor(2) as pool:
        taken, item = pool.submit(CLOCK.acquire, lock, deadline), pool.submit(CLOCK.get, source, deadline)
        lock.release()
        source.put("letter")
        assert taken.result(PATIENCE) is True
        assert item.result(PATIENCE) == "letter"


def test_a_bucket_admits_a_burst_and_then_actions_at_its_rate() -> None:
    bucket = TokenBucket(3, 0.5, 10.0)
    for _ in range(3):
        assert bucket.delay(10.0) == 0
        bucket.take()
    assert [bucket.delay(10.0), bucket.delay(11.0), bucket.delay(12.0)] == [2, 1, 0]
    bucket.take()
    assert bucket.delay(12.0) == 2


def test_a_bucket_is_full_after_a_while_and_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(2, 1.0, 0.0)
    bucket.take()
    assert not bucket.is_full(0.0)
    assert bucket.is_full(1000.0)
    bucket.take()
    bucket.take()
    assert bucket.delay(1000.0) == 1
    bucket.change(1, 4.0, 1000.0)
    assert bucket.delay(1000.0) == 0.25


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_of_a_key_passes_in_so_many_seconds_and_says_how_many_did_not(clock: Clock) -> None:
    rate = EventRate(10.0, clock)
    assert rate.passes("a") == 0
    assert rate.passes("b") == 0
    assert [rate.passes("a") for _ in range(3)] == [None, None, None]
    clock.now = 10.0
    assert rate.passes("a") == 3
    assert rate.passes("a") is None


def test_of_many_keys_the_last_share_one_place(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEYS", 3)
    rate = EventRate(10.0, clock)
    assert [rate.passes(key) for key in range(6)] == [0, 0, 0, 0, None, None]
    assert len(rate._passed) == 4
    clock.now = 10.0
    assert rate.passes("new") == 0
    assert len(rate._passed) == 1
