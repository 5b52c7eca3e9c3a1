"""`LoopReader`: reads a server's output on the event loop of a gateway instead of a thread of its own.

The loop that writes a call then also reads its answer, so that no call waits for another thread to be scheduled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from gaia.mcp.protocol.framing import OversizedLine
from gaia.runtime.handover import mark_engine_thread, on_engine_thread
from gaia.runtime.locks import Latch
from gaia.runtime.log import exception_text, get_logger, traceback_text

logger = get_logger(__name__)

SLICE_SECONDS = 0.0005
"""How long one turn of the loop may be busy with the lines of one server, but for one line that takes longer. An answer
of another server needs a few turns, and each of them may have such a slice in it."""

Line = bytes | OversizedLine


class PipeLoop(Protocol):
    """An event loop that reads and writes pipes of servers."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing runs on it any more."""

    def add_reader(self, descriptor: int, on_readable: Callable[[], object]) -> bool:
        """Call `on_readable` on the loop whenever something can be read. For any thread; False if it is closed."""

    def remove_reader(self, descriptor: int) -> None:
        """End this. For the loop's thread."""

    def is_current(self) -> bool:
        """Whether this is the loop's thread, and the loop runs."""

    def call_soon(self, task: Callable[[], object]) -> None:
        """Run `task` in the loop's next turn. For its thread."""

    def call_by_turns(self, task: Callable[[], object]) -> None:
        """Run `task` in a later turn of the loop, each of which runs one such task. For its thread."""


class LoopReader:
    """Reads one pipe to its end, and closes it. `join` and `is_alive` are as those of a thread.

    A server that writes more lines than fit into `SLICE_SECONDS` is read on in later turns of the loop. What it writes
    meanwhile stays in the pipe, and the server waits once that is full.
    """

    def __init__(
        self,
        pipe: IO[bytes],
        name: str,
        loop: PipeLoop,
        read: Callable[[], bytes],
        lines: Callable[[bytes], Iterator[Line]],
        on_line: Callable[[Line], object],
        on_end: Callable[[], object],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``read()`` returns what is there, and nothing at the end; ``lines(chunk)`` are the lines that this completes.

        The hooks run on the loop's thread.
        """
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._name = name
        self._loop = loop
        self._read = read
        self._lines = lines
        self._on_line = on_line
        self._on_end = on_end
        self._now = now
        self._rest: Iterator[Line] = iter(())
        """Of the last chunk. This and the next two belong to the loop's thread."""
        self._next: Line | None = None
        """The line that the next slice begins with."""
        self._is_paused = False
        self._over = Latch()

    def start(self) -> bool:
        """False if the loop is closed."""
        return self._loop.add_reader(self._descriptor, self._readable)

    def join(self, timeout: float) -> None:
        """Wait until the end of the pipe; not at all if the loop does not run any more, or this is its thread."""
        if not (self._loop.is_closed or self._loop.is_current()):
            self._over.wait(timeout)

    def is_alive(self) -> bool:
        return not self._over.is_open and not self._loop.is_closed

    def _readable(self) -> None:
        self._run(self._read_chunk)

    def _read_chunk(self) -> None:
        chunk = self._read()
        if chunk:
            self._rest = self._lines(chunk)
            self._next = next(self._rest, None)
            self._take_slice()
        else:
            self._end()

    def _take_slice(self) -> None:
        line, rest, until = self._next, self._rest, self._now() + SLICE_SECONDS
        while line is not None:
            self._on_line(line)
            line = next(rest, None)
            if line is not None and self._now() >= until:
                self._next = line
                self._pause()
                return
        if self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._descriptor, self._readable)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._descriptor)
        self._loop.call_by_turns(lambda: self._run(self._take_slice))

    def _run(self, step: Callable[[], None]) -> None:
        # No code of the application runs here, and what is logged must not wait for it.
        was_engine = on_engine_thread()
        mark_engine_thread()
        try:
            step()
        except BaseException as error:
            text, trace = exception_text(error), traceback_text(error)
            logger.error("thread_failed", thread=self._name, error=text, exception=trace)
            self._end()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                # A signal handler of the application has raised it, on the application's own loop.
                raise
        finally:
            mark_engine_thread(was_engine)

    def _end(self) -> None:
        if not self._over.is_open:
            self._loop.remove_reader(self._descriptor)
            self._pipe.close()
            self._over.open()
            self._on_end()
