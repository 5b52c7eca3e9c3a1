"""What one turn of a loop sends leaves together, and what comes alone or from a thread at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from gaia.mcp.rpc.channel import Frame
from gaia.mcp.transports.loop_writer import LoopWriter
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="loops do not write to pipes there")


class Turns:
    """An event loop of which the test ends each turn."""

    is_closed = False

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.tasks: list[Callable[[], object]] = []

    def add_reader(self, descriptor: int, on_readable: Callable[[], object]) -> bool:
        raise NotImplementedError

    def remove_reader(self, descriptor: int) -> None:
        raise NotImplementedError

    def is_current(self) -> bool:
        return threading.get_ident() == self.thread

    def call_soon(self, task: Callable[[], object]) -> None:
        self.tasks.append(task)

    def end(self) -> None:
        for task in self.tasks:
            task()
        self.tasks = []


class Pipe:
    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.turns = Turns()
        self.now = 1.0
        self.writer = LoopWriter(
            os.fdopen(writing, "wb", buffering=0),
            "x",
            max_pending=3,
            on_broken=lambda: None,
            loop=self.turns,
            now=lambda: self.now,
        )

    def send(self, word: bytes) -> bool:
        return self.writer.send(Frame(word))

    def read(self) -> bytes:
        os.set_blocking(self.reading, False)
        try:
            return os.read(self.reading, 1_000_000)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    assert pipe.writer.close()
    os.close(pipe.reading)


def test_what_comes_alone_is_written_at_once_and_without_a_further_turn(pipe: Pipe) -> None:
    for word in (b"a", b"b"):
        pipe.now += 0.0002
        assert pipe.send(word)
        assert pipe.read() == word
    assert pipe.turns.tasks == []


def test_what_comes_together_is_written_at_the_end_of_the_turn(pipe: Pipe) -> None:
    for _ in range(2):
        pipe.now += 0.0002
        for word in (b"a", b"b", b"c"):
            assert pipe.send(word)
            pipe.now += 0.00005
        assert pipe.read() == b"a"
        pipe.turns.end()
        assert pipe.read() == b"bc"
    assert not pipe.writer.has_waiting


def test_the_turn_is_ended_even_if_the_last_call_of_it_comes_late(pipe: Pipe) -> None:
    for word in (b"a", b"b", b"c"):
        assert pipe.send(word)
    pipe.now += 1
    assert pipe.send(b"d")
    assert pipe.read() == b"a"
    pipe.turns.end()
    assert pipe.read() == b"bcd"


def test_no_more_waits_than_may(pipe: Pipe) -> None:
    assert [pipe.send(word) for word in (b"a", b"b", b"c", b"d", b"e")] == [True, True, True, True, False]


def test_another_thread_writes_at_once_and_in_order(pipe: Pipe) -> None:
    assert pipe.send(b"a")
    assert pipe.send(b"b")
    thread = threading.Thread(target=pipe.send, args=(b"c",))
    thread.start()
    thread.join(PATIENCE)
    assert pipe.read() == b"abc"
    pipe.turns.end()
    assert pipe.read() == b""


def test_what_does_not_fit_is_written_when_the_server_reads(pipe: Pipe) -> None:
    assert pipe.send(b"a")
    assert pipe.send(b"b" * 5_000_000)
    pipe.turns.end()
    received = bytearray()

    def has_all() -> bool:
        received.extend(pipe.read())
        return len(received) == 5_000_001

    assert wait_until(has_all, PATIENCE)
