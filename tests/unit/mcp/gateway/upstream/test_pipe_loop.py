"""The loop reads pipes, for threads that ask it to."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys

import pytest

from gaia.mcp.gateway.upstream.pipe_loop import running_pipe_loop
from tests.waiting import PATIENCE

word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="nothing")


@pytest.mark.skipif(sys.platform == "win32", reason="loops do not read pipes there")
def test_a_pipe_is_read_on_the_loop_in_the_loops_own_context() -> None:
    async def use() -> None:
        pipes, loop = running_pipe_loop(), asyncio.get_running_loop()
        assert pipes is not None
        reading, writing = os.pipe()
        arrived: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()

        def add() -> bool:
            word.set("of the thread")
            return pipes.add_reader(reading, lambda: arrived.put_nowait((os.read(reading, 10), word.get())))

        word.set("of a task that came later")
        assert await loop.run_in_executor(None, add)
        os.write(writing, b"hello")
        assert await asyncio.wait_for(arrived.get(), PATIENCE) == (b"hello", "nothing")
        assert not pipes.is_closed
        pipes.remove_reader(reading)
        os.close(reading)
        os.close(writing)

    asyncio.run(use())


@pytest.mark.skipif(sys.platform == "win32", reason="loops do not read pipes there")
def test_a_thread_that_has_left_the_loop_is_not_the_loops() -> None:
    async def use() -> object:
        pipes = running_pipe_loop()
        assert pipes is not None
        assert pipes.is_current()
        assert not await asyncio.to_thread(pipes.is_current)
        return pipes

    loop = asyncio.new_event_loop()
    pipes = loop.run_until_complete(use())
    assert not pipes.is_current(), "what it puts off until the end of the turn would wait for ever"  # type: ignore[attr-defined]
    loop.close()


@pytest.mark.skipif(sys.platform == "win32", reason="loops do not read pipes there")
def test_a_loop_that_is_closed_says_so() -> None:
    async def use() -> object:
        return running_pipe_loop()

    pipes = asyncio.run(use())
    assert pipes is not None
    assert pipes.is_closed  # type: ignore[attr-defined]
    assert pipes.add_reader(0, lambda: None) is False  # type: ignore[attr-defined]
