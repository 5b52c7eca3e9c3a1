"""What only works while a thread waits: on a thread, for a task that may be cancelled."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.aio.threads import in_thread, stop_soon, stopping, until_done
from gaia.runtime.cancellation import current_scope
from tests.waiting import PATIENCE

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name")


class Held:
    """A function that runs until it is let go."""

    def __init__(self) -> None:
        self.began, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.cancelled = threading.Event()
        self.thread = ""

    def __call__(self) -> str:
        self.thread = threading.current_thread().name
        scope = current_scope()
        assert scope is not None
        scope.on_cancel(self.cancelled.set)
        self.began.set()
        assert self.go.wait(PATIENCE)
        self.ended.set()
        return "done"

    async def has_begun(self) -> None:
        while not self.began.is_set():
            await asyncio.sleep(0.001)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.go.set()
    if held.began.is_set():
        assert held.ended.wait(PATIENCE)


async def cancelled(task: "asyncio.Task[Any]") -> bool:
    await asyncio.wait([task])
    return task.cancelled()


async def test_its_result_is_that_of_the_function_and_the_context_that_of_the_task() -> None:
    def work(one: int, *, other: int) -> tuple[int, str, str]:
        return one + other, NAME.get(), threading.current_thread().name

    NAME.set("the task's")
    total, name, thread = await in_thread(work, 1, other=2)
    assert (total, name) == (3, "the task's")
    assert thread.startswith("mcp-aio-")


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
async def test_what_the_function_raises_the_task_raises(error: BaseException) -> None:
    def work() -> None:
        raise error

    for waits in (in_thread(work), until_done(work, lambda: None), stopping(work)):
        with pytest.raises(type(error)):
            await waits
    assert True


async def test_a_cancelled_task_does_not_wait_and_the_calls_of_the_function_are_cancelled(held: Held) -> None:

    task = asyncio.create_task(in_thread(held))
    await held.has_begun()
    task.cancel()
    assert await cancelled(task)
    assert held.cancelled.is_set()
    assert not held.ended.is_set()


async def test_what_is_cancelled_before_it_begins_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Any] = []
    monkeypatch.setattr("gaia.mcp.aio.threads._threads.submit", waiting.append)
    ran: list[str] = []

    task = asyncio.create_task(in_thread(lambda: ran.append("ran")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    waiting[0]()
    assert ran == []


async def test_until_done_a_cancelled_task_waits_for_the_end_that_it_asks_for(held: Held) -> None:

    task = asyncio.create_task(until_done(held, held.go.set))
    await held.has_begun()
    task.cancel()
    assert (await cancelled(task), held.ended.is_set()) == (True, True)
    assert held.cancelled.is_set()


async def test_what_stops_servers_is_done_to_its_end_however_often_the_task_is_cancelled(held: Held) -> None:

    task = asyncio.create_task(stopping(held))
    await held.has_begun()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    waits = not task.done()
    held.go.set()
    assert (waits, await cancelled(task)) == (True, True)
    assert not held.cancelled.is_set()


def test_stopping_has_threads_of_its_own(held: Held) -> None:
    names: list[str] = []
    ended = threading.Event()

    def stop() -> None:
        names.append(threading.current_thread().name)
        ended.set()

    stop_soon(stop)
    assert ended.wait(PATIENCE)
    assert names[0].startswith("mcp-aio-stop")


def test_a_loop_that_is_closed_meanwhile_disturbs_no_thread(held: Held) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(in_thread(held))
    loop.run_until_complete(held.has_begun())
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
    held.go.set()
    assert held.ended.wait(PATIENCE)


async def test_many_that_hang_keep_no_other_waiting() -> None:
    go = threading.Event()

    hanging = [asyncio.create_task(in_thread(go.wait, PATIENCE)) for _ in range(50)]
    ending = [asyncio.create_task(stopping(lambda: go.wait(PATIENCE))) for _ in range(50)]
    await asyncio.sleep(0)
    await stopping(lambda: None)
    name = await in_thread(lambda: "served")
    assert not go.is_set()
    go.set()
    await asyncio.gather(*hanging, *ending)
    assert name == "served"
