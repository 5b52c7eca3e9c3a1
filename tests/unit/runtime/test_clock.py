"""The clock of the system: deadlines are readings of it. What it has in common with the fake one is tested there."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gaia.runtime.clock import SystemClock
from gaia.runtime.locks import TimedQueue
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
