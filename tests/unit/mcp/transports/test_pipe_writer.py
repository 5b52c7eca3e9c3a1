"""The writer of a server's stdin, over real pipes: in order, whole, once, and without blocking a caller."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from gaia.mcp.errors import CallTimeout
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Frame
from gaia.mcp.transports import pipe_writer
from gaia.mcp.transports.pipe_writer import PipeWriter
from tests.interleaving import interleavings
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no non-blocking pipes; there the thread writes")

MEGABYTE = 1024 * 1024
MakeWriter = Callable[..., PipeWriter]


class Pipe:
    """A server's stdin: what is written on one side, and who reads on the other, if anybody."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.write_end = os.fdopen(write_end, "wb", buffering=0)
        self._reader: threading.Thread | None = None
        self._received = bytearray()

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, or all until the end."""
        data = b""
        while len(data) < size and (chunk := os.read(self.read_end, size - len(data))):
            data += chunk
        return data

    def read_in_background(self, chunk_size: int = 4096) -> None:
        """A server that reads on, a little at a time."""

        def drain() -> None:
            while chunk := os.read(self.read_end, chunk_size):
                self._received.extend(chunk)

        self._reader = threading.Thread(target=drain)
        self._reader.start()

    def received(self, size: int) -> bytes:
        """What was read in the background, as soon as it is so many bytes or more."""
        assert wait_until(lambda: len(self._received) >= size, PATIENCE), f"only {len(self._received)} bytes came"
        return bytes(self._received)

    def everything(self) -> bytes:
        """All that was read in the background, until the end."""
        assert self._reader is not None
        self._reader.join(PATIENCE)
        assert not self._reader.is_alive(), "the write end is still open"
        return bytes(self._received)

    def break_it(self) -> None:
        os.close(self.read_end)
        self.read_end = -1

    def close(self) -> None:
        if self._reader is not None:
            self._reader.join(PATIENCE)
        if self.read_end >= 0:
            self.break_it()


class Requests:
    """A reader, which is told of requests that others than before have made."""

    def __init__(self) -> None:
        self.expected: object = None
        self.sleeps = False
        self.told: list[Any] = []

    def requested(self, item: Any) -> None:
        self.told.append(item)


class Watched:
    """Something to write that says what the writer did with it."""

    id: int | None = None
    loop: Turns | None = None
    deadline = math.inf

    def __init__(self, frame: bytes, *, wanted: bool = True) -> None:
        self.frame = frame
        self.wanted = wanted
        self.began = 0
        self.undone = 0

    def begin_write(self) -> bool:
        if self.wanted:
            self.began += 1
        return self.wanted

    def undo_write(self) -> None:
        self.undone += 1

    @property
    def was_sent(self) -> bool:
        return self.began > self.undone


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def broken() -> threading.Event:
    """Set when the writer reports that the pipe is broken."""
    return threading.Event()


@pytest.fixture
def make_writer(pipe: Pipe, broken: threading.Event) -> Iterator[MakeWriter]:
    writers = []

    def make(max_pending: int = 10_000, on_broken: Callable[[], None] = broken.set) -> PipeWriter:
        writer = PipeWriter(pipe.write_end, "test", max_pending=max_pending, on_broken=on_broken, reader=Requests())
        writers.append(writer)
        return writer

    yield make
    for writer in writers:
        writer.close()


@pytest.fixture
def writer(make_writer: MakeWriter) -> PipeWriter:
    return make_writer()


def line(number: int, size: int = 20) -> bytes:
    return b"%d:%b\n" % (number, b"x" * size)


def call(identifier: int = 1, timeout: float = 30.0) -> Call:
    return Call(identifier, "tools/call", {"name": "echo"}, now=time.monotonic(), timeout=timeout)


class TestWriting:
    def test_a_lone_frame_is_written_before_send_returns(self, writer: PipeWriter, pipe: Pipe) -> None:
        assert writer.send(Frame(b"hello\n"))
        os.set_blocking(pipe.read_end, False)
        assert os.read(pipe.read_end, 100) == b"hello\n"

    def test_frames_of_one_thread_arrive_in_order(self, writer: PipeWriter, pipe: Pipe) -> None:
        pipe.read_in_background(chunk_size=777)
        frames = [line(number, size=number * 37 % 5000) for number in range(500)]
        for frame in frames:
            assert writer.send(Frame(frame))
        assert pipe.received(len(b"".join(frames))) == b"".join(frames)

    def test_a_frame_larger_than_any_pipe_arrives_whole(self, writer: PipeWriter, pipe: Pipe) -> None:
        pipe.read_in_background(chunk_size=65536)
        large, small = b"x" * (8 * MEGABYTE) + b"\n", b"small\n"
        assert writer.send(Frame(large))
        assert writer.send(Frame(small))
        assert pipe.received(len(large + small)) == large + small

    def test_an_empty_pipe_is_not_all_that_a_slow_reader_gets(self, writer: PipeWriter, pipe: Pipe) -> None:
        frames = [line(number, size=3000) for number in range(1000)]
        for frame in frames:
            assert writer.send(Frame(frame))
        # Nobody has read a byte so far: nearly all of it waits, and the last frame that began is cut.
        assert pipe.read(len(b"".join(frames))) == b"".join(frames)

    @pytest.mark.parametrize("size", [20, 20_000])
    def test_frames_of_many_threads_arrive_whole_and_once(self, writer: PipeWriter, pipe: Pipe, size: int) -> None:
        pipe.read_in_background(chunk_size=50_000)
        threads, each = 8, 100
        barrier = threading.Barrier(threads)

        def send(thread: int) -> None:
            barrier.wait(PATIENCE)
            for number in range(each):
                assert writer.send(Frame(line(thread * each + number, size)))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(send, range(threads)))
        frames = [line(number, size) for number in range(threads * each)]
        received = pipe.received(len(b"".join(frames))).splitlines(keepends=True)
        assert sorted(received) == sorted(frames)
        # And those of each thread in its order.
        numbers = [int(frame.split(b":")[0]) for frame in received]
        for thread in range(threads):
            own = [number for number in numbers if number // each == thread]
            assert own == sorted(own)

    def test_no_frame_is_left_behind_whoever_takes_which_step_first(self, writer: PipeWriter, pipe: Pipe) -> None:
        pipe.read_in_background()
        first, second = Frame(b"first\n"), Frame(b"second\n")
        both = interleavings(lambda: (lambda: writer.send(first), lambda: writer.send(second)), pipe_writer)
        for sent, _ in enumerate(both, start=1):
            received = pipe.received(sent * len(first.frame + second.frame))
            assert received.count(first.frame) == received.count(second.frame) == sent

    def test_a_handler_that_interrupts_a_write_may_write(self, writer: PipeWriter, pipe: Pipe) -> None:
        inner = Frame(b"inner\n")

        class Interrupted(Watched):
            def begin_write(self) -> bool:
                assert writer.send(inner)
                return super().begin_write()

        writer.send(Interrupted(b"outer\n"))
        assert pipe.read(12) == b"outer\ninner\n"


class TestCalls:
    def test_a_call_that_nobody_waits_for_any_more_is_not_written(self, writer: PipeWriter, pipe: Pipe) -> None:
        ended = call(1)
        ended.finish(error=CallTimeout("too late"))
        writer.send(ended)
        writer.send(Frame(b"next\n"))
        assert pipe.read(5) == b"next\n"
        assert not ended.written

    @pytest.mark.parametrize("others", [0, 1])
    def test_a_call_whose_deadline_has_passed_is_not_written(self, writer: PipeWriter, pipe: Pipe, others: int) -> None:
        """Nobody has ended it yet, as after a pause of the whole process."""
        blocking = Frame(b"x" * (2 * MEGABYTE) + b"\n")
        writer.send(blocking)
        late, waiting = call(1, timeout=0.0), [call(2 + each) for each in range(others)]
        for one in (late, *waiting):
            assert writer.send(one)
        last = Frame(b"last\n")
        expected = blocking.frame + b"".join(each.frame for each in waiting)
        assert pipe.read(len(expected)) == expected
        writer.send(last)
        assert pipe.read(len(last.frame)) == last.frame
        assert not late.ended
        assert late.delivery == "not_sent"

    def test_a_call_that_ends_while_it_waits_for_the_pipe_is_not_written(self, writer: PipeWriter, pipe: Pipe) -> None:
        large = b"x" * (2 * MEGABYTE) + b"\n"
        writer.send(Frame(large))
        waiting, ended = call(1), call(2)
        writer.send(ended)
        writer.send(waiting)
        error = CallTimeout("too late")
        ended.finish(error=error)
        assert error.delivery == "not_sent"
        assert pipe.read(len(large) + len(waiting.frame)) == large + waiting.frame
        assert waiting.delivery == "unknown"
        assert ended.delivery == "not_sent"

    def test_what_a_full_pipe_did_not_take_was_not_sent(self, writer: PipeWriter, pipe: Pipe) -> None:
        """All of it queued up, and leaves in few writes, of which the pipe takes a part."""
        items = [Watched(line(number, 10_000)) for number in range(300)]

        class First(Watched):
            def begin_write(self) -> bool:
                for item in items:
                    writer.send(item)
                return super().begin_write()

        writer.send(First(b"first\n"))
        sent = sum(item.was_sent for item in items)
        assert 0 < sent < len(items)
        assert [item.was_sent for item in items] == [True] * sent + [False] * (len(items) - sent)
        # The last one that began may be in the pipe in part only. Those that did not begin come when there is room.
        whole = b"first\n" + b"".join(item.frame for item in items[: sent - 1])
        assert pipe.read(len(whole)) == whole
        rest = b"".join(item.frame for item in items[sent - 1 :])
        assert pipe.read(len(rest)) == rest
        assert all(item.was_sent for item in items)


class TestInterruption:
    """A signal handler that sends while it interrupts the writing thread in the middle of a write."""

    def test_its_call_is_refused_because_it_would_wait_for_itself(self, writer: PipeWriter, pipe: Pipe) -> None:
        refused = call(7)

        class Interrupted(Watched):
            def begin_write(self) -> bool:
                assert not writer.send(refused)
                return super().begin_write()

        assert writer.send(Interrupted(b"first\n"))
        assert not refused.written
        assert writer.send(refused)
        assert pipe.read(6 + len(refused.frame)) == b"first\n" + refused.frame


class TestLimits:
    def test_more_than_may_wait_is_refused_until_there_is_room(self, make_writer: MakeWriter, pipe: Pipe) -> None:
        writer = make_writer(max_pending=3)
        writer.send(Frame(b"x" * (2 * MEGABYTE) + b"\n"))
        waiting = [writer.send(Frame(b"small\n")) for _ in range(5)]
        assert waiting == [True, True, True, False, False]
        pipe.read(2 * MEGABYTE + 1 + 3 * len(b"small\n"))
        assert wait_until(lambda: writer.send(Frame(b"later\n")))

    def test_a_sender_never_waits_for_the_reader(self, writer: PipeWriter) -> None:
        """Nobody reads, and yet this ends."""
        for number in range(200):
            assert writer.send(Frame(line(number, 100_000)))


class TestBrokenPipe:
    def test_it_is_reported_once_and_later_calls_are_not_sent(self, make_writer: MakeWriter, pipe: Pipe) -> None:
        reports: list[str] = []
        reported = threading.Event()

        def report() -> None:
            reports.append(threading.current_thread().name)
            reported.set()

        writer = make_writer(on_broken=report)
        pipe.break_it()
        items = [Watched(b"frame\n") for _ in range(5)]
        for item in items:
            writer.send(item)
        assert reported.wait(PATIENCE)
        late = Watched(b"late\n")
        writer.send(late)
        writer.close()
        assert reports == ["test-writer"], "and not by a caller"
        assert not any(item.was_sent for item in [*items, late])

    def test_a_server_that_goes_away_in_the_middle_of_a_frame(
        self, writer: PipeWriter, pipe: Pipe, broken: threading.Event
    ) -> None:
        large, waiting = Watched(b"x" * (2 * MEGABYTE) + b"\n"), Watched(b"small\n")
        writer.send(large)
        writer.send(waiting)
        pipe.read(100)
        pipe.break_it()
        assert broken.wait(PATIENCE)
        assert large.was_sent, "some of it may have been read"
        assert not waiting.was_sent

    def test_an_interrupt_while_writing_ends_the_pipe_and_blocks_nobody(
        self, writer: PipeWriter, pipe: Pipe, broken: threading.Event
    ) -> None:
        """How much was written is unknown then; a frame that follows half a frame would be junk."""

        class Interrupted(Watched):
            def begin_write(self) -> bool:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            writer.send(Interrupted(b"frame\n"))
        own = Watched(b"own\n")
        own.id = 2
        assert writer.send(own)
        assert not own.was_sent
        assert broken.wait(PATIENCE)
        late = Watched(b"late\n")
        with ThreadPoolExecutor(1) as other:
            assert other.submit(writer.send, late).result(PATIENCE)
        assert not late.was_sent


class CtrlC:
    """Somebody who presses Ctrl-C again and again; it interrupts the main thread in what runs under `exposed`."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._exposed = False
        self.over = threading.Event()
        self._presser = threading.Thread(target=self._press)

    def __enter__(self) -> CtrlC:
        self._before = signal.signal(signal.SIGUSR1, self._interrupt)
        self._presser.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._presser.join()
        signal.signal(signal.SIGUSR1, self._before)

    def interrupts(self, function: Callable[..., object], *args: object) -> bool:
        """Call the function; returns whether it was interrupted."""
        try:
            self._exposed = True
            function(*args)
            self._exposed = False
        except KeyboardInterrupt:
            return True
        return False

    def _interrupt(self, _signal: int, _frame: object) -> None:
        if self._exposed:
            self._exposed = False
            raise KeyboardInterrupt

    def _press(self) -> None:
        for _ in range(self._times):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            # Long enough for some writes, and never the same number of them.
            self.over.wait(0.0005)
        self.over.set()


@pytest.mark.skipif(sys.gettrace() is not None, reason="an interrupt inside of a tracer leaves the tracer's lock taken")
@pytest.mark.parametrize("round_", range(3))
def test_interrupts_at_any_moment_leave_no_frame_after_half_a_frame_and_nothing_locked(
    make_writer: MakeWriter, pipe: Pipe, round_: int
) -> None:
    writer = make_writer()
    pipe.read_in_background()
    interrupted = sent = 0
    with CtrlC(times=20) as ctrl_c:
        while not ctrl_c.over.is_set():
            interrupted += ctrl_c.interrupts(writer.send, Frame(line(sent)))
            sent += 1
    assert interrupted
    writer.close()
    whole, _, _ = pipe.everything().rpartition(b"\n")
    numbers = [int(frame.split(b":")[0]) for frame in whole.splitlines()]
    assert whole.splitlines(keepends=True)[:-1] == [line(number) for number in numbers[:-1]]
    assert numbers == sorted(set(numbers))


class TestClosing:
    def test_it_ends_the_servers_input_and_nothing_is_even_asked_or_broken_afterwards(
        self, writer: PipeWriter, pipe: Pipe, broken: threading.Event
    ) -> None:
        writer.send(Frame(b"last\n"))
        writer.close()
        assert pipe.read(100) == b"last\n"
        writer.close()
        late = Watched(b"late\n")
        writer.send(late)
        assert late.began == 0
        assert not broken.is_set()

    def test_a_stalled_writer_closes_at_once_and_writes_nothing_more(self, writer: PipeWriter, pipe: Pipe) -> None:
        waiting = Watched(b"waiting\n")
        writer.send(Frame(b"x" * (2 * MEGABYTE)))
        writer.send(waiting)
        assert writer.close(), "nothing is written any more"
        assert pipe.write_end.closed
        assert set(pipe.read(3 * MEGABYTE)) == {ord("x")}
        assert waiting.began == 0

    def test_senders_that_race_with_closing_find_every_frame_whole(self, writer: PipeWriter, pipe: Pipe) -> None:
        pipe.read_in_background()
        begun = threading.Barrier(5)

        def send(thread: int) -> None:
            begun.wait(PATIENCE)
            for number in range(300):
                writer.send(Frame(line(thread * 1000 + number)))

        with ThreadPoolExecutor(4) as pool:
            senders = [pool.submit(send, thread) for thread in range(4)]
            begun.wait(PATIENCE)
            writer.close()
            for sender in senders:
                sender.result(PATIENCE)
        received = pipe.everything()
        assert received == b"".join(line(int(frame.split(b":")[0])) for frame in received.splitlines())


class Turns:
    """An event loop of which the test ends each turn."""

    is_closed = False

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.tasks: list[Callable[[], object]] = []
        self.loop = self

    def is_current(self) -> bool:
        return threading.get_ident() == self.thread

    def call_soon(self, task: Callable[[], object]) -> None:
        self.tasks.append(task)

    def end(self) -> None:
        for task in self.tasks:
            task()
        self.tasks = []


class FromLoop:
    """Calls that tasks of one loop make."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.turns = Turns()
        self.now = 1.0
        self.reader = Requests()
        self.writer = PipeWriter(
            pipe.write_end,
            "x",
            max_pending=3,
            on_broken=lambda: None,
            reader=self.reader,
            now=lambda: self.now,
        )
        os.set_blocking(pipe.read_end, False)

    def send(self, word: bytes) -> bool:
        item = Watched(word)
        item.loop = self.turns
        return self.writer.send(item)

    def read(self) -> bytes:
        try:
            return os.read(self.pipe.read_end, 1_000_000)
        except BlockingIOError:
            return b""


@pytest.fixture
def from_loop(pipe: Pipe) -> Iterator[FromLoop]:
    from_loop = FromLoop(pipe)
    yield from_loop
    assert from_loop.writer.close()


class TestWhatALoopSends:
    def test_what_comes_alone_is_written_at_once_and_without_a_further_turn(self, from_loop: FromLoop) -> None:
        for word in (b"a", b"b"):
            from_loop.now += 0.0002
            assert from_loop.send(word)
            assert from_loop.read() == word
        assert from_loop.turns.tasks == []

    def test_what_comes_together_is_written_at_the_end_of_the_turn(self, from_loop: FromLoop) -> None:
        for _ in range(2):
            from_loop.now += 0.0002
            for word in (b"a", b"b", b"c"):
                assert from_loop.send(word)
                from_loop.now += 0.00005
            assert from_loop.read() == b"a"
            from_loop.turns.end()
            assert from_loop.read() == b"bc"

    def test_the_turn_is_ended_even_if_the_last_call_of_it_comes_late(self, from_loop: FromLoop) -> None:
        for word in (b"a", b"b", b"c"):
            assert from_loop.send(word)
        from_loop.now += 1
        assert from_loop.send(b"d")
        assert from_loop.read() == b"a"
        from_loop.turns.end()
        assert from_loop.read() == b"bcd"

    def test_an_exception_of_a_signal_handler_keeps_no_later_call_from_being_written(
        self, from_loop: FromLoop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert from_loop.send(b"a")
        with monkeypatch.context() as patched:
            patched.setattr(from_loop.turns, "call_soon", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                from_loop.send(b"b")
        assert from_loop.send(b"c")
        from_loop.turns.end()
        assert from_loop.read() == b"abc"

    def test_an_exception_of_a_signal_handler_at_the_end_of_the_turn_leaves_the_rest_to_the_thread(
        self, from_loop: FromLoop
    ) -> None:
        assert from_loop.send(b"a")
        assert from_loop.send(b"b")
        turn = from_loop.writer._turn
        from_loop.writer._turn = MagicMock(locked=Mock(side_effect=KeyboardInterrupt))
        from_loop.writer._turn.__enter__.side_effect = turn.__enter__
        from_loop.writer._turn.__exit__.side_effect = turn.__exit__
        with pytest.raises(KeyboardInterrupt):
            from_loop.turns.tasks.pop()()
        received = bytearray()
        assert wait_until(lambda: received.extend(from_loop.read()) or received == b"ab", PATIENCE)

    def test_an_end_of_the_turn_too_many_does_no_harm(self, from_loop: FromLoop) -> None:
        assert from_loop.send(b"a")
        assert from_loop.send(b"b")
        from_loop.turns.tasks *= 2
        from_loop.turns.end()
        assert from_loop.read() == b"ab"

    def test_no_more_waits_than_may(self, from_loop: FromLoop) -> None:
        sent = [from_loop.send(word) for word in (b"a", b"b", b"c", b"d", b"e")]
        assert sent == [True, True, True, True, False]

    def test_another_thread_writes_at_once_and_in_order(self, from_loop: FromLoop) -> None:
        assert from_loop.send(b"a")
        assert from_loop.send(b"b")
        thread = threading.Thread(target=from_loop.send, args=(b"c",))
        thread.start()
        thread.join(PATIENCE)
        assert from_loop.read() == b"abc"
        from_loop.turns.end()
        assert from_loop.read() == b""

    def test_what_does_not_fit_is_written_when_the_server_reads(self, from_loop: FromLoop) -> None:
        assert from_loop.send(b"a")
        assert from_loop.send(b"b" * 5_000_000)
        from_loop.turns.end()
        received = bytearray()

        def has_all() -> bool:
            received.extend(from_loop.read())
            return len(received) == 5_000_001

        assert wait_until(has_all, PATIENCE)

    def test_the_reader_is_told_when_others_than_before_make_requests(self, from_loop: FromLoop) -> None:
        assert from_loop.send(b"a")
        assert [item.frame for item in from_loop.reader.told] == [b"a"]
        from_loop.reader.expected = from_loop.turns
        assert from_loop.send(b"b")
        assert len(from_loop.reader.told) == 1
        assert from_loop.writer.send(Watched(b"c"))
        assert [item.frame for item in from_loop.reader.told] == [b"a", b"c"]

    def test_a_reader_that_sleeps_is_told_of_each_request(self, from_loop: FromLoop) -> None:
        from_loop.reader.expected, from_loop.reader.sleeps = from_loop.turns, True
        assert from_loop.send(b"a")
        assert [item.frame for item in from_loop.reader.told] == [b"a"]
