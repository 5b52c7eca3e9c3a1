"""The thread for deadlines: what it ends and when, and what it keeps meanwhile."""

import os
import threading
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from gaia.mcp.rpc.call import Call
from gaia.runtime.clock import SystemClock
from gaia.runtime.deadlines import DeadlineHandle, Deadlines, deadlines_of
from gaia.testing import FakeClock
from tests.unit.runtime.conftest import no_threads, run_program
from tests.waiting import PATIENCE, wait_until

NOW = 1000.0
"""Of a new `FakeClock`."""


class Question:
    """Something that waits, and remembers that it was expired."""

    def __init__(self, deadline: float) -> None:
        self.watched: DeadlineHandle | None = None
        self.deadline = deadline
        self.expired = threading.Event()

    @property
    def ended(self) -> bool:
        return self.expired.is_set()

    def expire(self) -> None:
        self.expired.set()


@pytest.fixture
def deadlines(fake_clock: FakeClock) -> Iterator[Deadlines]:
    """Some with a user, whose thread runs therefore."""
    deadlines = deadlines_of(fake_clock)
    deadlines.hold("user")
    yield deadlines
    deadlines.let_go("user")
    deadlines.wait_idle()


def threads() -> int:
    return sum(thread.name == "mcp-deadlines" for thread in threading.enumerate())


class TestEnding:
    def test_what_is_late_is_ended_in_the_order_of_deadlines(self, deadlines: Deadlines, fake_clock: FakeClock) -> None:
        ended: list[float] = []
        for seconds in (3.0, 1.0, 2.0):
            deadlines.watch(Question(NOW + seconds), lambda question: ended.append(question.deadline))
        for number in (1, 2, 3):
            fake_clock.wait_for_waiter(NOW + number)
            fake_clock.advance(1.0)
            assert wait_until(lambda number=number: len(ended) == number)
        assert ended == [NOW + 1.0, NOW + 2.0, NOW + 3.0]

    def test_one_that_is_earlier_than_the_next_one_wakes_the_thread_up(
        self, deadlines: Deadlines, fake_clock: FakeClock
    ) -> None:
        deadlines.watch(Question(NOW + 30.0))
        fake_clock.wait_for_waiter(NOW + 30.0)
        question = Question(NOW + 10.0)
        deadlines.watch(question)
        fake_clock.wait_for_waiter(NOW + 10.0)
        fake_clock.advance(10.0)
        assert question.expired.wait(PATIENCE)
        fake_clock.advance(20.0)

    def test_one_that_is_later_does_not(self, deadlines: Deadlines, fake_clock: FakeClock) -> None:
        first, second = Question(NOW + 30.0), Question(NOW + 40.0)
        deadlines.watch(first)
        fake_clock.wait_for_waiter(NOW + 30.0)
        deadlines.watch(second)
        assert len(deadlines._arrived) == 1
        fake_clock.advance(30.0)
        assert first.expired.wait(PATIENCE)
        fake_clock.wait_for_waiter(NOW + 40.0)
        fake_clock.advance(10.0)
        assert second.expired.wait(PATIENCE)

    def test_one_that_came_nearer_counts_once_it_is_watched_again_and_one_that_was_moved_back_at_once(
        self, deadlines: Deadlines, fake_clock: FakeClock
    ) -> None:
        question = Question(NOW + 600.0)
        deadlines.watch(question)
        fake_clock.wait_for_waiter(NOW + 600.0)
        for deadline in (NOW + 50.0, NOW + 10.0):
            question.deadline = deadline
            deadlines.watch(question)
            fake_clock.wait_for_waiter(deadline)
        question.deadline = NOW + 25.0
        fake_clock.advance(10.0)
        fake_clock.wait_for_waiter(NOW + 25.0)
        assert not question.ended
        fake_clock.advance(15.0)
        assert question.expired.wait(PATIENCE)

    def test_one_that_raises_costs_no_other_its_end(
        self, deadlines: Deadlines, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        question = Question(NOW + 10.0)
        deadlines.watch(Question(NOW + 10.0), Mock(side_effect=SystemExit("no")))
        deadlines.watch(question)
        fake_clock.wait_for_waiter(NOW + 10.0)
        fake_clock.advance(10.0)
        assert question.expired.wait(PATIENCE)
        assert wait_until(lambda: "deadline_failed" in caplog.text)

    def test_a_clock_that_raises_is_asked_again(
        self, deadlines: Deadlines, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        question, has_raised = Question(NOW), threading.Event()

        def fail(*_: object) -> None:
            monkeypatch.undo()
            has_raised.set()
            raise OSError("no time")

        monkeypatch.setattr(fake_clock, "get", fail)
        deadlines.watch(Question(NOW))
        assert has_raised.wait(PATIENCE)
        deadlines.watch(question)
        assert question.expired.wait(PATIENCE)


class TestKeeping:
    @pytest.mark.parametrize("ends_first", [True, False])
    def test_what_has_ended_is_kept_no_longer(self, deadlines: Deadlines, ends_first: bool) -> None:
        call = Call(1, "tools/call", None, NOW, 3600.0)
        steps = [lambda: deadlines.watch(call, Mock()), lambda: call.finish({"content": "large"})]
        for step in reversed(steps) if ends_first else steps:
            step()
        assert call.watched is not None
        assert call.watched.waiting is None

    def test_the_handles_of_many_do_not_pile_up(self, deadlines: Deadlines) -> None:
        open_ones = []
        for number in range(10_000):
            question = Question(NOW + 1e6 - number)
            deadlines.watch(question)
            if number % 100:
                question.expire()
            else:
                open_ones.append(question)
        assert wait_until(lambda: not deadlines._arrived or len(deadlines._arrived) < 256)
        assert wait_until(lambda: len(deadlines._heap) <= 2 * len(open_ones) + 2 * 256)
        for question in open_ones:
            question.expire()

    def test_what_never_ends_by_itself_is_not_watched(self, deadlines: Deadlines) -> None:
        call = Call(1, "subscriptions/listen", None, NOW, float("inf"))
        deadlines.watch(call, Mock())
        assert call.watched is None


class TestThread:
    def test_it_runs_while_it_has_users(self, fake_clock: FakeClock) -> None:
        deadlines = deadlines_of(fake_clock)
        assert threads() == 0
        deadlines.hold("a")
        deadlines.hold("b")
        assert threads() == 1
        deadlines.let_go("a")
        deadlines.wait_idle()
        assert threads() == 1
        deadlines.let_go("b")
        deadlines.wait_idle()
        assert threads() == 0

    def test_without_users_it_runs_until_all_has_ended(self, fake_clock: FakeClock) -> None:
        question = Question(NOW + 10.0)
        deadlines_of(fake_clock).watch(question)
        fake_clock.wait_for_waiter(NOW + 10.0)
        fake_clock.advance(10.0)
        assert question.expired.wait(PATIENCE)
        assert wait_until(lambda: threads() == 0)

    def test_all_system_clocks_have_one_and_another_clock_its_own(self, fake_clock: FakeClock) -> None:
        assert deadlines_of(SystemClock()) is deadlines_of(SystemClock())
        assert deadlines_of(fake_clock) is deadlines_of(fake_clock)
        assert deadlines_of(fake_clock) is not deadlines_of(FakeClock())

    def test_if_it_cannot_be_started_the_user_is_told(self, fake_clock: FakeClock) -> None:
        deadlines = deadlines_of(fake_clock)
        with no_threads(), pytest.raises(RuntimeError, match="start new thread"):
            deadlines.hold("user")
        deadlines.hold("user")
        deadlines.let_go("user")
        deadlines.wait_idle()
        assert threads() == 0

    @pytest.mark.process
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    def test_a_forked_child_has_one_of_its_own(self) -> None:
        program = """
import os, threading, time
from gaia.runtime.clock import SystemClock
from gaia.runtime.deadlines import deadlines_of

class Question:
    watched = None
    ended = False

    def __init__(self, seconds):
        self.deadline = time.monotonic() + seconds
        self.expired = threading.Event()

    def expire(self):
        self.expired.set()

deadlines = deadlines_of(SystemClock())
deadlines.hold("user")
first = Question(3600.0)
deadlines.watch(first)
with deadlines._lock:
    child = os.fork()
if child == 0:
    second = Question(0.0)
    deadlines.watch(second)
    os._exit(0 if second.expired.wait(10) and deadlines._heap == [] else 1)
assert os.waitpid(child, 0)[1] == 0
assert not first.expired.is_set()
"""
        run_program(program)


def test_time_is_measured_in_seconds() -> None:
    question = Question(time.monotonic() + 0.02)
    deadlines_of(SystemClock()).watch(question)
    assert question.expired.wait(PATIENCE)
    assert time.monotonic() >= question.deadline
