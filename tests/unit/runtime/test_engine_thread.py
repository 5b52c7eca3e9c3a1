"""Threads on which servers depend: what ends one of them is logged, and its owner is told."""

from __future__ import annotations

import threading
from typing import NoReturn

import pytest

from gaia.runtime import engine_thread, log
from gaia.runtime.engine_thread import EngineThread, with_pauses
from gaia.runtime.handover import on_engine_thread
from tests.unspeakable import Unspeakable
from tests.waiting import PATIENCE


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
    monkeypatch.setattr(engine_thread.time, "sleep", lambda _: paused_after.append(len(taken)))
    for item in with_pauses(range(200)):
        taken += [item]
    assert taken == list(range(200))
    assert paused_after == [64, 128, 192]
    del paused_after[:]
    assert list(with_pauses([1])) == [1]
    assert paused_after == [], "an answer that comes alone is not delayed"
