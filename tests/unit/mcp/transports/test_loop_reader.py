"""A server's output is read on an event loop, to its end, whatever it is."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.gateway.upstream.pipe_loop import running_pipe_loop
from gaia.mcp.protocol.framing import LineFramer
from gaia.mcp.transports.loop_reader import SLICE_SECONDS, LoopReader
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime import log
from gaia.runtime.handover import on_engine_thread
from gaia.runtime.locks import Latch
from tests.unit.mcp.transports.conftest import Listener
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="loops do not read pipes there")


class Read:
    """A reader of a pipe, and what has come of it."""

    def __init__(
        self,
        on_line: Callable[[Any], object] | None = None,
        now: Callable[[], float] = time.perf_counter,
        lines: Callable[[bytes], Iterator[Any]] = lambda chunk: iter([chunk]),
    ) -> None:
        reading, self.writing = os.pipe()
        loop = running_pipe_loop()
        assert loop is not None
        self.chunks: list[bytes] = []
        self.was_engine: list[bool] = []
        self.ended = asyncio.Event()
        self.arrived = asyncio.Event()
        pipe = os.fdopen(reading, "rb", buffering=0)
        self.pipe = pipe
        self.reader = LoopReader(
            pipe,
            "mcp-x-reader",
            loop,
            lambda: os.read(reading, 100),
            lines,
            on_line or self._take,
            self.ended.set,
            now,
        )
        assert self.reader.start()

    def _take(self, chunk: bytes) -> None:
        self.was_engine.append(on_engine_thread())
        self.chunks.append(chunk)
        self.arrived.set()

    async def close(self) -> None:
        os.close(self.writing)
        await asyncio.wait_for(self.ended.wait(), PATIENCE)


def test_what_is_written_is_read_to_the_end() -> None:
    async def use() -> None:
        read = Read()
        os.write(read.writing, b"one")
        await asyncio.wait_for(read.arrived.wait(), PATIENCE)
        assert read.reader.is_alive()
        os.write(read.writing, b"two")
        await read.close()
        assert b"".join(read.chunks) == b"onetwo"
        assert set(read.was_engine) == {True}, "no code of the application runs there"
        assert not on_engine_thread()
        assert not read.reader.is_alive()
        assert read.pipe.closed
        read.reader.join(0.0)

    asyncio.run(use())


def test_an_exception_ends_the_reading_and_not_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_chunk: bytes) -> None:
        raise ValueError("a mistake of ours")

    async def use() -> None:
        read = Read(fail)
        os.write(read.writing, b"one")
        await asyncio.wait_for(read.ended.wait(), PATIENCE)
        assert not read.reader.is_alive()
        os.close(read.writing)

    asyncio.run(use())
    log.flush()
    assert "a mistake of ours" in caplog.text


def test_one_turn_of_the_loop_takes_a_slice_of_what_a_server_writes_at_once() -> None:
    async def use() -> None:
        loop, taken, turns = asyncio.get_running_loop(), list[bytes](), list[int]()
        seconds = 0.0

        def take(line: bytes) -> None:
            nonlocal seconds
            seconds += SLICE_SECONDS / 4
            taken.append(line)

        def turn() -> None:
            turns.append(len(taken))
            if not read.ended.is_set():
                loop.call_soon(turn)

        read = Read(take, lambda: seconds, LineFramer().lines)
        os.write(read.writing, b"".join(b"%d\n" % number for number in range(60)) + b"the")
        os.write(read.writing, b" end\n")
        loop.call_soon(turn)
        await read.close()
        assert taken == [*(b"%d" % number for number in range(60)), b"the end"], "all of it, in its order"
        # One for the slice, and one for what becomes readable in the same turn.
        assert max(after - before for before, after in itertools.pairwise(turns)) <= 8

    asyncio.run(use())


def test_servers_that_write_at_once_are_read_by_turns() -> None:
    async def use() -> None:
        order, seconds = list[bytes](), 0.0

        def take(line: bytes) -> None:
            nonlocal seconds
            seconds += SLICE_SECONDS
            order.append(line)

        reads = [Read(take, lambda: seconds, LineFramer().lines) for _ in range(3)]
        for read, line in zip(reads, (b"a\n", b"b\n", b"c\n"), strict=True):
            os.write(read.writing, line * 20)
        for read in reads:
            await read.close()
        assert sorted(order) == [b"a"] * 20 + [b"b"] * 20 + [b"c"] * 20
        assert {*order[15:18]} == {b"a", b"b", b"c"}

    asyncio.run(use())


def test_an_exception_in_a_later_slice_ends_the_reading_too() -> None:
    async def use() -> None:
        taken: list[bytes] = []

        def fail_at_the_third(line: bytes) -> None:
            taken.append(line)
            if len(taken) == 3:
                raise ValueError("a mistake of ours")

        read = Read(fail_at_the_third, lambda: len(taken) * SLICE_SECONDS, LineFramer().lines)
        os.write(read.writing, b"x\n" * 10)
        await asyncio.wait_for(read.ended.wait(), PATIENCE)
        assert len(taken) == 3
        assert read.pipe.closed
        os.close(read.writing)

    asyncio.run(use())


def test_what_the_application_raises_in_a_signal_handler_reaches_it() -> None:
    def interrupt(_chunk: bytes) -> None:
        raise KeyboardInterrupt

    async def use() -> None:
        read = Read(interrupt)
        os.write(read.writing, b"one")
        os.close(read.writing)
        await asyncio.wait_for(read.ended.wait(), PATIENCE)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(use())


def test_a_loop_that_is_closed_is_not_waited_for() -> None:
    async def use() -> Read:
        return Read()

    read = asyncio.run(use())
    read.reader.join(PATIENCE)
    assert not read.reader.is_alive()
    read.pipe.close()
    os.close(read.writing)


def test_the_loop_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        read = Read()
        with monkeypatch.context() as patched:
            patched.setattr(Latch, "wait", lambda *_: pytest.fail("it waits"))
            read.reader.join(PATIENCE)
        assert read.reader.is_alive()
        await read.close()

    asyncio.run(use())


@pytest.mark.process
def test_a_server_is_read_on_the_loop_if_its_transport_says_so() -> None:
    program = "import sys\nfor line in sys.stdin: print(line.strip() + '!', flush=True)\nprint('the end')"

    async def use() -> list[Any]:
        transport = StdioTransport(sys.executable, ["-I", "-S", "-c", program])
        transport.pipe_loop = running_pipe_loop()
        listener = Listener()
        loop = asyncio.get_running_loop()
        channel = await loop.run_in_executor(None, transport.open, listener, "x")
        names = [reader.name for reader in channel._readers if not isinstance(reader, LoopReader)]
        assert names == ["mcp-x-stderr"], "and no thread does"
        await loop.run_in_executor(None, channel.close, PATIENCE)
        return [listener.lines.get(timeout=PATIENCE), listener.ended.wait(PATIENCE)]

    assert asyncio.run(use()) == [b"the end", True]


@pytest.mark.process
def test_mistakes_with_all_that_a_server_writes_do_not_hide_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> bool:
        transport = StdioTransport(
            sys.executable, ["-I", "-S", "-c", "import os; os.write(1, b'line\\nrest'); input()"]
        )
        transport.pipe_loop = running_pipe_loop()
        listener = Listener()
        monkeypatch.setattr(listener, "message_received", Mock(side_effect=ValueError("a mistake of ours")))
        loop = asyncio.get_running_loop()
        channel = await loop.run_in_executor(None, transport.open, listener, "x")
        ended = await loop.run_in_executor(None, listener.ended.wait, PATIENCE)
        await loop.run_in_executor(None, channel.close, PATIENCE)
        return ended

    assert asyncio.run(use())
