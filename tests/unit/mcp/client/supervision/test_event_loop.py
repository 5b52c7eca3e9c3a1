"""The deadlines that a supervisor watches, and when it is woken up for one."""

import threading

from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.supervision.event_loop import EventLoop, Timer, Timers
from gaia.testing import FakeClock
from tests.waiting import PATIENCE


class Task:
    """A task that is recognised."""

    def __call__(self) -> None: ...


BACKOFF, COOLDOWN, HEALTH = Task(), Task(), Task()


def call(deadline: float) -> Call:
    return Call(1, "tools/call", None, 0.0, deadline)


def test_there_is_no_deadline_at_first() -> None:
    assert Timers().next_deadline() is None
    assert Timers().due(1e9) == ([], [])


def test_the_next_deadline_is_the_earliest_of_all() -> None:
    timers = Timers()
    timers.set(Timer.HEALTH, 30.0, HEALTH)
    assert timers.next_deadline() == 30.0
    timers.watch(call(20.0))
    assert timers.next_deadline() == 20.0
    timers.set(Timer.BACKOFF, 10.0, BACKOFF)
    assert timers.next_deadline() == 10.0


def test_what_comes_due_is_taken_once() -> None:
    timers = Timers()
    timers.set(Timer.HEALTH, 10.0, HEALTH)
    timers.set(Timer.COOLDOWN, 10.5, COOLDOWN)
    early, late = call(10.0), call(10.5)
    timers.watch(late)
    timers.watch(early)
    assert timers.due(9.9) == ([], [])
    assert timers.due(10.0) == ([HEALTH], [early])
    assert timers.due(10.0) == ([], [])
    assert timers.due(11.0) == ([COOLDOWN], [late])
    assert timers.next_deadline() is None


def test_calls_come_due_in_the_order_of_deadlines_and_of_arrival() -> None:
    timers = Timers()
    calls = [call(deadline) for deadline in (3.0, 1.0, 2.0, 1.0)]
    for one in calls:
        timers.watch(one)
    assert timers.due(5.0)[1] == [calls[1], calls[3], calls[2], calls[0]]


def test_a_timer_that_is_set_again_counts_from_then() -> None:
    timers = Timers()
    timers.set(Timer.HEALTH, 10.0, HEALTH)
    timers.set(Timer.HEALTH, 20.0, HEALTH)
    assert timers.due(15.0) == ([], [])
    assert timers.due(20.0) == ([HEALTH], [])


def test_a_cancelled_timer_does_not_come_due() -> None:
    timers = Timers()
    timers.set(Timer.HEALTH, 10.0, HEALTH)
    timers.cancel(Timer.HEALTH, Timer.BACKOFF)
    assert timers.next_deadline() is None
    assert timers.due(20.0) == ([], [])


def test_calls_that_have_ended_are_nothing_to_wake_up_for() -> None:
    timers = Timers()
    ended, other = call(1.0), call(2.0)
    timers.watch(ended)
    timers.watch(other)
    ended.finish({})
    assert timers.next_deadline() == 2.0
    other.finish({})
    assert timers.due(5.0) == ([], [])


def test_calls_that_have_ended_do_not_pile_up_until_their_deadlines() -> None:
    timers = Timers()
    open_calls = []
    for number in range(10_000):
        one = call(1e6 - number)
        timers.watch(one)
        if number % 100:
            one.finish({})
        else:
            open_calls.append(one)
    assert len(timers._waiting) <= 2 * len(open_calls) + 64
    assert timers.due(1e6)[1] == open_calls[::-1]


class TestWatching:
    """A supervisor's thread that waits, and others that add deadlines."""

    def waiting(self, loop: EventLoop) -> tuple[threading.Thread, list[object]]:
        tasks: list[object] = []
        thread = threading.Thread(target=lambda: tasks.append(loop.next_task()))
        thread.start()
        return thread, tasks

    def test_one_that_is_earlier_than_the_next_one_wakes_the_thread_up(self, fake_clock: FakeClock) -> None:
        loop = EventLoop(fake_clock)
        loop.timers.set(Timer.HEALTH, 1030.0, HEALTH)
        thread, tasks = self.waiting(loop)
        fake_clock.wait_for_waiter(1030.0)
        loop.watch(call(1010.0))
        thread.join(PATIENCE)
        (task,) = tasks
        assert callable(task)
        task()
        assert loop.timers.next_deadline() == 1010.0

    def test_one_that_is_later_does_not_and_is_watched_from_the_next_turn_on(self, fake_clock: FakeClock) -> None:
        loop = EventLoop(fake_clock)
        loop.timers.set(Timer.HEALTH, 1030.0, HEALTH)
        thread, tasks = self.waiting(loop)
        fake_clock.wait_for_waiter(1030.0)
        loop.watch(call(1040.0))
        assert loop.pending == 0
        loop.post(HEALTH)
        thread.join(PATIENCE)
        assert tasks == [HEALTH]
        loop.timers.cancel(Timer.HEALTH)
        thread, tasks = self.waiting(loop)
        fake_clock.wait_for_waiter(1040.0)
        fake_clock.advance(50.0)
        thread.join(PATIENCE)
        assert tasks == [None]
        assert len(loop.timers.due(1040.0)[1]) == 1

    def test_a_thread_that_does_not_wait_is_not_woken_up(self, fake_clock: FakeClock) -> None:
        loop = EventLoop(fake_clock)
        loop.watch(call(1.0))
        assert loop.pending == 0
        assert loop.next_task() is None
        assert len(loop.timers.due(1.0)[1]) == 1

    def test_many_are_taken_over_at_once_so_that_those_that_have_ended_are_not_kept(
        self, fake_clock: FakeClock
    ) -> None:
        loop = EventLoop(fake_clock)
        calls = [call(1e6) for _ in range(64)]
        for one in calls:
            loop.watch(one)
        assert loop.pending == 1
        for one in calls:
            one.finish({})
        task = loop.next_task()
        assert task is not None
        task()
        assert loop.timers.next_deadline() is None

    def test_one_that_has_ended_is_not_watched(self, fake_clock: FakeClock) -> None:
        loop = EventLoop(fake_clock)
        ended = call(1.0)
        ended.finish({})
        loop.watch(ended)
        assert not loop._arrived
