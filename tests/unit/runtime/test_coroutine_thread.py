"""The loop of the engine: one thread for all users, which ends with the last of them."""

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from gaia.runtime.coroutine_thread import CoroutineThread, run_apart
from tests.waiting import PATIENCE

name: ContextVar[str] = ContextVar("name", default="nobody")


@pytest.fixture
def coroutines() -> Iterator[CoroutineThread]:
    coroutines = CoroutineThread()
    yield coroutines
    for user in ("a", "b"):
        coroutines.let_go(user)


def loops() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "mcp-coroutines"]


async def the_loop() -> tuple[Any, str]:
    return asyncio.get_running_loop(), name.get()


def test_all_users_have_one_loop_on_one_thread(coroutines: CoroutineThread) -> None:
    name.set("Ann")
    works = [coroutines.loop_for(user) for user in ("a", "b", "a")]
    found = [run_apart(the_loop(), work) for work in works]
    assert len({id(loop) for loop, _ in found}) == 1
    assert [who for _, who in found] == ["Ann"] * 3
    assert len(loops()) == 1


def test_it_ends_with_its_last_user_and_cancels_its_tasks(coroutines: CoroutineThread) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    work = coroutines.loop_for("a")
    coroutines.loop_for("b")
    assert work.loop is not None
    asyncio.run_coroutine_threadsafe(wait(), work.loop)
    assert began.wait(PATIENCE)
    coroutines.let_go("a")
    assert len(loops()) == 1
    coroutines.let_go("b")
    assert cancelled.is_set()
    assert loops() == []
    assert work.is_closed


def test_another_user_starts_it_again(coroutines: CoroutineThread) -> None:
    first = coroutines.loop_for("a")
    coroutines.let_go("a")
    second = coroutines.loop_for("b")
    assert first.is_closed
    assert run_apart(the_loop(), second)[0] is second.loop


def test_a_coroutine_on_it_cannot_wait_for_another_one_there(coroutines: CoroutineThread) -> None:
    work = coroutines.loop_for("a")

    async def outer() -> None:
        run_apart(the_loop(), work)

    with pytest.raises(RuntimeError, match=r"await the call, with gaia.mcp.aio"):
        run_apart(outer(), work)
