"""Long work on an event loop is done in slices, between which the loop does other things."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gaia.mcp.aio.loop_turns import LoopTurns, running_loop_turns
from gaia.runtime.loop_work import SLICE_SECONDS


def test_each_turn_of_the_loop_runs_one_task() -> None:
    async def main() -> list[list[str]]:
        order: list[str] = []
        turns = running_loop_turns()

        def again(name: str, times: int) -> None:
            order.append(name)
            if times > 1:
                turns.add(lambda: again(name, times - 1))

        turns.add(lambda: again("a", 3))
        turns.add(lambda: again("b", 2))
        seen = []
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append(list(order))
        return seen

    assert asyncio.run(main()) == [["a", "b", "a", "b", "a"][:count] for count in range(1, 6)]


def test_steps_are_taken_for_as_long_as_a_slice_lasts() -> None:
    seconds = 0.0
    taken: list[int] = []

    def steps() -> Iterator[None]:
        nonlocal seconds
        for number in range(10):
            taken.append(number)
            seconds += SLICE_SECONDS / 4
            yield

    async def main() -> list[int]:
        turns = LoopTurns(asyncio.get_running_loop(), lambda: seconds)
        turns.run(steps())
        counts = [len(taken)]
        while len(taken) < 10:
            await asyncio.sleep(0)
            counts.append(len(taken))
        return counts

    assert asyncio.run(main()) == [4, 8, 10]


def test_a_task_that_raises_leaves_the_others_alone() -> None:
    async def main() -> None:
        ran = asyncio.Event()
        turns, loop = running_loop_turns(), asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        turns.add(lambda: 1 / 0)
        turns.add(ran.set)
        await ran.wait()

    asyncio.run(main())


def test_there_are_those_of_each_loop_and_none_without_one() -> None:
    async def main() -> LoopTurns:
        assert running_loop_turns() is running_loop_turns()
        return running_loop_turns()

    assert asyncio.run(main()) is not asyncio.run(main())
    with pytest.raises(RuntimeError, match="no running event loop"):
        running_loop_turns()
