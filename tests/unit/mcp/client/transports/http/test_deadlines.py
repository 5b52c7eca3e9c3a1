"""Limits of time for what has no caller."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from gaia.handover import on_engine_thread
from gaia.mcp.client.transports.http.deadlines import Deadlines
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def deadlines(no_leaks: None) -> Iterator[Deadlines]:
    deadlines = Deadlines("deadlines")
    yield deadlines
    assert deadlines.close(10)


def test_what_takes_too_long_is_told(deadlines: Deadlines) -> None:
    expired = threading.Event()
    with deadlines.limit(0.01, expired.set):
        assert expired.wait(PATIENCE)


def test_that_runs_no_log_handlers(deadlines: Deadlines) -> None:
    """They would hold up the other limits."""
    told: queue.SimpleQueue[bool] = queue.SimpleQueue()
    with deadlines.limit(0.01, lambda: told.put(on_engine_thread())):
        assert told.get(timeout=PATIENCE)


def test_what_ends_in_time_is_not(deadlines: Deadlines) -> None:
    early, late = threading.Event(), threading.Event()
    with deadlines.limit(0.05, late.set):
        with deadlines.limit(0.01, early.set):
            pass
        assert late.wait(PATIENCE)
    assert not early.is_set()


def test_an_earlier_one_may_come_later(deadlines: Deadlines) -> None:
    """The thread sleeps until the first by then."""
    expired = threading.Event()
    with deadlines.limit(1000, lambda: None):
        assert wait_until(lambda: deadlines._next > 0)
        with deadlines.limit(0.01, expired.set):
            assert expired.wait(PATIENCE)


def test_there_is_one_thread_however_many_there_are(deadlines: Deadlines) -> None:
    barrier = threading.Barrier(21)
    counts: list[int] = []

    def limited() -> None:
        with deadlines.limit(1000, lambda: None):
            barrier.wait(PATIENCE)
            barrier.wait(PATIENCE)

    threads = [threading.Thread(target=limited) for _ in range(20)]
    for thread in threads:
        thread.start()
    barrier.wait(PATIENCE)
    counts.append(sum(thread.name.startswith("deadlines") for thread in threading.enumerate()))
    barrier.wait(PATIENCE)
    for thread in threads:
        thread.join()
    assert counts == [1]


def test_it_can_be_used_again_after_all_have_ended(deadlines: Deadlines) -> None:
    for _ in range(3):
        expired = threading.Event()
        with deadlines.limit(0.001, expired.set):
            assert expired.wait(PATIENCE)
        assert wait_until(lambda: not deadlines._running)


def test_closing_wakes_the_thread(deadlines: Deadlines) -> None:
    with deadlines.limit(1000, lambda: None):
        assert deadlines.close(10)


def test_without_threads_there_are_none(
    deadlines: Deadlines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with deadlines.limit(0.001, lambda: None):
        pass
    assert "deadline_not_watched" in caplog.text
