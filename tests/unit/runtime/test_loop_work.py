"""What other threads hand over to an event loop: in order, with one wake-up for many, also to one that is closed."""

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.runtime.loop_work import SLICE_SECONDS, LoopWork, WakeUp, release, running_loop_work
from tests.waiting import PATIENCE, wait_until


def on_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def test_a_burst_of_tasks_runs_in_order_and_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    loop, woken = asyncio.get_running_loop(), 0
    inbox, wake = LoopWork(loop), loop.call_soon_threadsafe

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal woken
        woken += 1
        return wake(*arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    def burst() -> None:
        for number in range(1000):
            inbox.post(lambda number=number: seen.append(number))  # type: ignore[misc]

    # The loop does not run meanwhile.
    on_another_thread(burst)
    ended = loop.create_future()
    inbox.post(lambda: release(ended))
    await ended
    assert woken == 1
    assert seen == list(range(1000))


async def test_one_turn_of_the_loop_runs_a_bounded_number_of_tasks() -> None:
    seen: list[int] = []

    inbox, counts = LoopWork(asyncio.get_running_loop()), [0]
    for number in range(1000):
        inbox.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    while len(seen) < 1000:
        await asyncio.sleep(0)
        counts.append(len(seen))
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 32
    assert seen == list(range(1000))


async def test_what_comes_while_tasks_run_lets_the_loop_do_other_things_first() -> None:
    order: list[str] = []

    loop = asyncio.get_running_loop()
    inbox, ended = LoopWork(loop), loop.create_future()

    def first() -> None:
        order.append("first")
        loop.call_soon(lambda: order.append("the loop's own"))
        inbox.post(lambda: (order.append("second"), release(ended)))

    inbox.post(first)
    await ended
    assert order == ["first", "the loop's own", "second"]


async def test_a_task_that_raises_is_told_to_the_loop_and_holds_up_no_other() -> None:
    told: list[Any] = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    inbox, ended = LoopWork(loop), loop.create_future()
    inbox.post(lambda: 1 / 0)
    inbox.post(lambda: release(ended))
    await ended
    assert [type(error) for error in told] == [ZeroDivisionError]


async def test_an_exception_of_a_signal_handler_loses_no_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    inbox, ended = LoopWork(loop), loop.create_future()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            inbox.post(lambda: None)
    inbox.post(lambda: release(ended))
    await asyncio.wait_for(ended, PATIENCE)


class TestAClosedLoop:
    @pytest.fixture
    def closed(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.close()
        return loop

    def test_tasks_run_on_another_thread_also_those_that_it_was_woken_up_for(self) -> None:
        loop, names = asyncio.new_event_loop(), list[tuple[str, str]]()
        inbox = LoopWork(loop)
        inbox.post(lambda: names.append(("before", threading.current_thread().name)))
        loop.close()
        inbox.post(lambda: names.append(("after", threading.current_thread().name)))
        assert wait_until(lambda: len(names) == 2)
        assert [when for when, _ in names] == ["before", "after"]
        assert all(name.startswith("mcp-aio-closed") for _, name in names)

    async def test_another_loop_that_is_woken_up_has_them_run(self) -> None:
        loop, ran = asyncio.new_event_loop(), threading.Event()
        LoopWork(loop).post(ran.set)
        loop.close()

        running_loop_work().post(lambda: None)
        assert ran.wait(PATIENCE)

    def test_one_that_is_closed_in_this_moment_disturbs_no_thread_that_posts(
        self, closed: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = threading.Event()
        monkeypatch.setattr(closed, "is_closed", lambda: False)
        LoopWork(closed).post(ran.set)
        assert ran.wait(PATIENCE)

    def test_its_futures_are_left_alone(self) -> None:
        loop = asyncio.new_event_loop()
        future = loop.create_future()
        future.add_done_callback(print)
        loop.close()
        release(future)
        assert not future.done()

    def test_an_inbox_keeps_no_loop(self) -> None:
        loop = asyncio.new_event_loop()
        inbox, ran = LoopWork(loop), threading.Event()
        loop.close()
        del loop
        gc.collect()
        assert inbox.loop is None
        inbox.post(ran.set)
        assert ran.wait(PATIENCE)
        names: list[str] = []
        inbox.run_soon(lambda: names.append(threading.current_thread().name))
        assert wait_until(lambda: bool(names))
        assert names[0].startswith("mcp-aio-closed")


def test_the_inbox_of_the_running_loop_is_one_for_each_loop_and_none_without_one() -> None:
    async def main() -> LoopWork:
        assert running_loop_work() is running_loop_work()
        assert running_loop_work().loop is asyncio.get_running_loop()
        return running_loop_work()

    assert asyncio.run(main()) is not asyncio.run(main())
    with pytest.raises(RuntimeError, match="needs a running event loop of asyncio"):
        running_loop_work()


class TestWakeUp:
    async def test_one_that_came_before_is_not_lost_and_counts_once(self) -> None:

        wake_up = WakeUp(running_loop_work())
        on_another_thread(wake_up.send)
        await asyncio.wait_for(wake_up.wait(), PATIENCE)
        waiting = asyncio.ensure_future(wake_up.wait())
        await asyncio.sleep(0)
        waits = not waiting.done()
        on_another_thread(wake_up.send)
        await asyncio.wait_for(waiting, PATIENCE)
        assert waits

    async def test_a_task_that_is_cancelled_waits_no_more(self) -> None:
        wake_up = WakeUp(running_loop_work())
        waiting = asyncio.ensure_future(wake_up.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        wake_up.arrive()
        await asyncio.wait_for(wake_up.wait(), PATIENCE)


async def test_each_turn_of_the_loop_runs_one_task() -> None:

    order: list[str] = []
    turns = running_loop_work()

    def again(name: str, times: int) -> None:
        order.append(name)
        if times > 1:
            turns.add_slice(lambda: again(name, times - 1))

    turns.add_slice(lambda: again("a", 3))
    turns.add_slice(lambda: again("b", 2))
    seen = []
    for _ in range(5):
        await asyncio.sleep(0)
        seen.append(list(order))
    assert seen == [["a", "b", "a", "b", "a"][:count] for count in range(1, 6)]


async def test_steps_are_taken_for_as_long_as_a_slice_lasts() -> None:
    seconds = 0.0
    taken: list[int] = []

    def steps() -> Iterator[None]:
        nonlocal seconds
        for number in range(10):
            taken.append(number)
            seconds += SLICE_SECONDS / 4
            yield

    turns = LoopWork(asyncio.get_running_loop(), lambda: seconds)
    turns.run_in_slices(steps())
    counts = [len(taken)]
    while len(taken) < 10:
        await asyncio.sleep(0)
        counts.append(len(taken))
    assert counts == [4, 8, 10]


async def test_a_task_that_raises_leaves_the_others_alone() -> None:
    ran = asyncio.Event()
    turns, loop = running_loop_work(), asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    turns.add_slice(lambda: 1 / 0)
    turns.add_slice(ran.set)
    await ran.wait()
