"""An agent's synchronous code on threads."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from gaia.serving.threads import TooManyCalls, WorkerThreads
from tests.waiting import PATIENCE


@pytest.fixture
def threads() -> Iterator[WorkerThreads]:
    workers = WorkerThreads(limit=2, waiting=1)
    yield workers
    workers.close(10)


async def test_a_result_and_an_exception_come_back(threads: WorkerThreads) -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    assert await threads.run(lambda: 42) == 42
    with pytest.raises(LookupError, match="no such thing"):
        await threads.run(fail)


@pytest.mark.parametrize("exception", [StopIteration, SystemExit, KeyboardInterrupt, CancelledError])
async def test_an_exception_that_would_end_the_loop_does_not(
    threads: WorkerThreads, exception: type[BaseException]
) -> None:
    def fail() -> None:
        raise exception

    with pytest.raises(RuntimeError, match=exception.__name__):
        await threads.run(fail)
    assert await threads.run(lambda: 42) == 42


async def test_calls_see_the_callers_context(threads: WorkerThreads) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    assert await threads.run(variable.get) == "set"
    await threads.run(lambda: variable.set("changed by the call"))
    assert variable.get() == "set"


async def test_a_call_that_is_cancelled_keeps_its_thread_until_it_is_done(threads: WorkerThreads) -> None:
    release = threading.Event()
    began = [asyncio.Event(), asyncio.Event()]
    loop = asyncio.get_running_loop()

    def hold(number: int) -> None:
        loop.call_soon_threadsafe(began[number].set)
        release.wait(PATIENCE)

    held = [asyncio.create_task(threads.run(lambda n=number: hold(n))) for number in (0, 1)]  # type: ignore[misc]
    for event in began:
        await event.wait()
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    # Both threads are still busy: one call may wait, the next is too many.
    waiting = asyncio.create_task(threads.run(lambda: "waited"))
    await asyncio.sleep(0)
    with pytest.raises(TooManyCalls):
        await threads.run(lambda: None)
    assert not waiting.done()
    release.set()
    assert await waiting == "waited"


def test_a_call_that_is_cancelled_before_it_begins_is_left_out(threads: WorkerThreads) -> None:
    release = threading.Event()
    ran: list[int] = []

    async def session() -> None:
        held = [asyncio.create_task(threads.run(lambda: release.wait(PATIENCE))) for _ in range(2)]
        left_out = asyncio.create_task(threads.run(lambda: ran.append(1)))
        await asyncio.sleep(0)
        left_out.cancel()
        await asyncio.gather(left_out, return_exceptions=True)
        release.set()
        await asyncio.gather(*held)

    asyncio.run(session())
    # What was left out is taken, too.
    threads.close(PATIENCE)
    assert ran == []
