"""A server's output is read to its end, by the loop whose tasks wait for it or by the reader's thread."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gaia.mcp.protocol.framing import LineFramer
from gaia.mcp.transports import pipe_reader
from gaia.mcp.transports.pipe_reader import SLICE_LINES, SLICE_SECONDS, PipeReader
from gaia.runtime.handover import on_engine_thread
from gaia.runtime.locks import Latch, get_within
from gaia.runtime.loop_work import LoopWork, running_loop_work
from gaia.runtime.threads import EngineThread
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="loops do not read pipes there")


class Read:
    """A reader of a pipe, and what has come of it."""

    def __init__(
        self,
        on_line: Callable[[Any], object] | None = None,
        now: Callable[[], float] = time.perf_counter,
        lines: Callable[[bytes], Iterator[Any]] | None = None,
    ) -> None:
        reading, self.writing = os.pipe()
        self.pipe = os.fdopen(reading, "rb", buffering=0)
        self.lines: list[Any] = []
        self.threads: list[int] = []
        self.was_engine: list[bool] = []
        self.failed, self.ended = Latch(), Latch()
        self.awaits_answers = False
        framer = LineFramer()
        self.reader = PipeReader(
            self.pipe,
            lambda: os.read(reading, 65536),
            lines or framer.lines,
            on_line or self._take,
            self.failed.open,
            lambda: self.awaits_answers,
            now,
        )
        self.thread = EngineThread(self._run, "mcp-x-reader")
        self.thread.start()

    def _run(self) -> None:
        try:
            self.reader.run()
        finally:
            self.ended.open()

    def _take(self, line: Any) -> None:
        self.threads.append(threading.get_ident())
        self.was_engine.append(on_engine_thread())
        self.lines.append(line)

    def request(self, loop: LoopWork | None) -> None:
        self.reader.requested(SimpleNamespace(id=1, bound=False, loop=loop))  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)

    async def told(self, line: bytes) -> int:
        """The thread that has read `line`, which is written now."""
        self.write(line + b"\n")
        await until(lambda: line in self.lines)
        return self.threads[self.lines.index(line)]

    async def is_read_by_loop(self) -> None:
        """Have the running loop read."""
        self.request(running_loop_work())
        # Each line is another one than those before.
        for number in itertools.count(len(self.lines)):
            if await self.told(b"%d" % number) == threading.get_ident():
                return

    def close(self) -> None:
        os.close(self.writing)
        assert self.ended.wait(PATIENCE)
        self.thread.join(PATIENCE)
        assert self.pipe.closed


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


async def closed(read: Read) -> None:
    await asyncio.to_thread(read.close)


async def test_the_thread_reads_until_a_task_makes_a_request() -> None:

    read = Read()
    assert await read.told(b"first") == read.thread.ident
    await read.is_read_by_loop()
    assert read.was_engine == [True] * len(read.was_engine), "no code of the application runs there"
    assert not on_engine_thread()
    read.write(b"the end\n")
    await closed(read)
    assert read.lines[-1] == b"the end"
    assert not read.failed.is_open


async def test_requests_of_the_supervisor_change_nothing() -> None:

    read = Read()
    await read.is_read_by_loop()
    read.reader.requested(SimpleNamespace(id=2, bound=True, loop=None))  # type: ignore[arg-type]
    read.reader.requested(SimpleNamespace(id=None, bound=False, loop=None))  # type: ignore[arg-type]
    assert await read.told(b"last") == threading.get_ident()
    await closed(read)


async def test_a_request_of_a_thread_does_not_wait_for_the_loop() -> None:
    """It may be made on the loop's own thread, which waits for the answer then."""
    read = Read()
    await read.is_read_by_loop()
    read.request(None)
    read.write(b"answer\n")
    assert wait_until(lambda: b"answer" in read.lines, PATIENCE), "this blocks the loop"
    assert read.threads[-1] == read.thread.ident
    await closed(read)


async def test_a_loop_that_is_blocked_leaves_the_reading_to_the_thread_for_a_while() -> None:
    seconds = 0.0

    read = Read(now=lambda: seconds)
    for away in (1.0, 2.0, 4.0):
        await read.is_read_by_loop()
        read.awaits_answers = True
        read.reader.look()
        read.write(b"unread %d\n" % away)
        assert wait_until(lambda away=away: b"unread %d" % away in read.lines, PATIENCE), "this blocks the loop"
        seconds += away - 0.1
        assert await read.told(b"soon %d" % away) == read.thread.ident
        seconds += 0.2
        read.awaits_answers = False
    await closed(read)


async def test_the_thread_sleeps_while_no_answer_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look(source: Any, seconds: float) -> None:
        if seconds == pipe_reader._UNREAD_SECONDS:
            looks.append(seconds)
        get_within(source, seconds)

    monkeypatch.setattr(pipe_reader, "get_within", look)
    read = Read()
    await read.is_read_by_loop()
    await until(lambda: read.reader.sleeps)
    seen = len(looks)
    assert await read.told(b"what the server says by itself") == threading.get_ident()
    assert len(looks) == seen
    read.request(running_loop_work())
    await until(lambda: len(looks) > seen)
    await closed(read)


async def test_a_loop_that_is_closed_leaves_the_reading_to_the_thread() -> None:

    read = Read()
    await read.is_read_by_loop()
    read.awaits_answers = True
    read.reader.look()
    read.write(b"later\n")
    assert wait_until(lambda: b"later" in read.lines, PATIENCE)
    read.close()


async def test_what_a_server_says_by_itself_is_read_when_the_loop_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look(source: Any, seconds: float) -> None:
        if seconds == pipe_reader._SLEEP_SECONDS and over.wait(PATIENCE):
            # They have passed.
            raise queue.Empty
        get_within(source, seconds)

    monkeypatch.setattr(pipe_reader, "get_within", look)
    read = Read()
    await read.is_read_by_loop()
    await until(lambda: read.reader.sleeps)
    read.write(b"later\n")
    over.set()
    assert wait_until(lambda: b"later" in read.lines, PATIENCE)
    assert read.threads[-1] == read.thread.ident
    read.close()


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The copies of pipes that are made for loops."""
    made: list[Any] = []
    opened = os.fdopen

    def open_copy(*arguments: Any, **keywords: Any) -> Any:
        made.append(opened(*arguments, **keywords))
        return made[-1]

    monkeypatch.setattr(os, "fdopen", open_copy)
    return made


def test_a_loop_that_was_blocked_at_the_end_leaves_the_number_of_the_pipe_to_others(copies: list[Any]) -> None:
    async def use() -> None:
        loop, read = asyncio.get_running_loop(), Read()
        await read.is_read_by_loop()
        number = read.pipe.fileno()
        ours, theirs = socket.socketpair()
        read.request(None)
        # This blocks the loop.
        read.close()
        os.dup2(ours.fileno(), number)
        with ours, theirs, socket.socket(fileno=number) as again:
            again.setblocking(False)
            receiving = asyncio.ensure_future(loop.sock_recv(again, 10))
            await until(lambda: copies[-1].closed)
            theirs.send(b"hello")
            async with asyncio.timeout(PATIENCE):
                assert await receiving == b"hello"

    asyncio.run(use())
    assert [copy.closed for copy in copies] == [True, True], "the pipe, and the copy for the loop"


def test_the_copy_for_a_loop_is_closed_when_the_loop_reads_to_the_end_or_is_closed(copies: list[Any]) -> None:
    async def use(read: Read) -> None:
        await read.is_read_by_loop()

    async def end() -> None:
        read = Read()
        await use(read)
        await closed(read)

    asyncio.run(end())
    assert [copy.closed for copy in copies] == [True, True]
    read = Read()
    asyncio.run(use(read))
    read.reader.look()
    read.close()
    assert wait_until(lambda: all(copy.closed for copy in copies), PATIENCE)


async def test_the_thread_reads_when_there_is_no_descriptor_for_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def dup(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    read = Read()
    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", dup)
        read.request(running_loop_work())
        for word in (b"one", b"two", b"three"):
            assert await read.told(word) == read.thread.ident
    await closed(read)


def test_another_loop_reads_when_the_requests_come_from_it_alone() -> None:
    seconds = itertools.count(0.0, 100.0)

    async def first() -> Read:
        read = Read(now=lambda: next(seconds))
        await read.is_read_by_loop()
        return read

    async def second(read: Read) -> None:
        await read.is_read_by_loop()
        await closed(read)

    asyncio.run(second(asyncio.run(first())))


async def test_a_loop_that_reads_no_pipes_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:

    read, asked = Read(), list[int]()

    def add_reader(descriptor: int, *_: object) -> None:
        asked.append(descriptor)
        raise NotImplementedError

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
        read.request(running_loop_work())
        for word in (b"one", b"two", b"three"):
            assert await read.told(word) == read.thread.ident
    assert len(asked) == 1
    await closed(read)


async def test_what_the_thread_takes_over_in_the_middle_comes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_reader, "SLICE_LINES", 1)
    words = [b"word %d" % number for number in range(50)]

    read = Read()
    await read.is_read_by_loop()
    read.write(b"".join(word + b"\n" for word in words))
    await until(lambda: words[3] in read.lines)
    read.request(None)
    assert wait_until(lambda: words[-1] in read.lines, PATIENCE)
    assert read.lines[-50:] == words
    assert {read.threads[-1], read.threads[-50]} == {read.thread.ident, threading.get_ident()}
    await closed(read)


async def test_an_exception_ends_the_reading_and_not_the_loop(caplog: pytest.LogCaptureFixture) -> None:

    def take(line: bytes) -> None:
        read._take(line)
        if line == b"bad":
            raise ValueError("a mistake of ours")

    read = Read(take)
    await read.is_read_by_loop()
    read.write(b"bad\n")
    await until(lambda: read.failed.is_open)
    await closed(read)
    assert "a mistake of ours" in caplog.text


def test_what_the_application_raises_in_a_signal_handler_reaches_it() -> None:
    async def use() -> None:
        def take(line: bytes) -> None:
            read._take(line)
            if line == b"bad":
                raise KeyboardInterrupt

        read = Read(take)
        await read.is_read_by_loop()
        read.write(b"bad\n")
        os.close(read.writing)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(use())


async def test_one_turn_of_the_loop_takes_a_slice_of_what_a_server_writes_at_once() -> None:

    loop, turns = asyncio.get_running_loop(), list[int]()
    read = Read()
    await read.is_read_by_loop()
    earlier = len(read.lines)

    def turn() -> None:
        turns.append(len(read.lines))
        if b"the end" not in read.lines:
            loop.call_soon(turn)

    read.write(b"".join(b"line %d\n" % number for number in range(200)) + b"the end\n")
    turn()
    await until(lambda: b"the end" in read.lines)
    assert read.lines[earlier:] == [*(b"line %d" % number for number in range(200)), b"the end"], "in its order"
    # One for the slice, and one for what becomes readable in the same turn.
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 2 * SLICE_LINES
    await closed(read)


async def test_servers_that_write_at_once_are_read_by_turns() -> None:

    order, seconds = list[bytes](), 0.0

    def take(read: Read, line: bytes) -> None:
        nonlocal seconds
        read._take(line)
        if line in (b"a", b"b", b"c"):
            seconds += SLICE_SECONDS
            order.append(line)

    reads: list[Read] = []
    for number in range(3):
        reads.append(Read(lambda line, number=number: take(reads[number], line), lambda: seconds))
        await reads[-1].is_read_by_loop()
    for read, line in zip(reads, (b"a\n", b"b\n", b"c\n"), strict=True):
        read.write(line * 20)
    await until(lambda: len(order) == 60)
    assert {*order[15:18]} == {b"a", b"b", b"c"}
    for read in reads:
        await closed(read)
