"""The timers of a supervisor, and when its thread is woken up."""

from concurrent.futures import ThreadPoolExecutor

from gaia.runtime.event_loop import EventLoop, Timer, Timers
from gaia.testing import FakeClock
from tests.waiting import PATIENCE


class Task:
    """A task that is recognised."""

    def __call__(self) -> None: ...


BACKOFF, COOLDOWN, HEALTH = Task(), Task(), Task()


def test_the_next_deadline_is_the_earliest_of_all_and_what_comes_due_is_taken_once() -> None:
    timers = Timers()
    assert timers.next_deadline() is None
    assert timers.due(1e9) == []
    timers.set(Timer.COOLDOWN, 30.0, COOLDOWN)
    assert timers.next_deadline() == 30.0
    timers.set(Timer.HEALTH, 10.0, HEALTH)
    assert timers.next_deadline() == 10.0
    assert timers.due(9.9) == []
    assert timers.due(10.0) == [HEALTH]
    assert timers.due(10.0) == []
    assert timers.due(30.5) == [COOLDOWN]
    assert timers.next_deadline() is None


def test_a_timer_that_is_set_again_counts_from_then_until_it_is_cancelled() -> None:
    timers = Timers()
    for deadline in (10.0, 20.0):
        timers.set(Timer.HEALTH, deadline, HEALTH)
    assert timers.due(15.0) == []
    assert timers.due(20.0) == [HEALTH]
    timers.set(Timer.HEALTH, 30.0, HEALTH)
    timers.cancel(Timer.HEALTH, Timer.BACKOFF)
    assert timers.next_deadline() is None
    assert timers.due(40.0) == []


class TestLoop:
    def test_a_timer_that_is_due_comes_before_the_tasks(self, fake_clock: FakeClock) -> None:
        loop = EventLoop(fake_clock)
        loop.post(HEALTH)
        loop.timers.set(Timer.BACKOFF, fake_clock.monotonic(), BACKOFF)
        assert loop.next_task() is None
        assert loop.timers.due(fake_clock.monotonic()) == [BACKOFF]
        assert loop.next_task() is HEALTH

    def test_it_waits_for_the_next_timer(self, fake_clock: FakeClock) -> None:
        loop = EventLoop(fake_clock)
        loop.timers.set(Timer.HEALTH, 1030.0, HEALTH)
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(loop.next_task)
            fake_clock.wait_for_waiter(1030.0)
            fake_clock.advance(30.0)
            assert task.result(PATIENCE) is None
