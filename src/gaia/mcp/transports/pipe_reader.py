"""`PipeReader`: reads a server's output, on a thread or on the event loop whose tasks wait for the answers.

A task continues sooner if its own loop reads, because no other thread has to be scheduled for that.

- The thread reads at first. Once a task of an event loop has made a request, that loop reads.
- Meanwhile the thread watches. It takes the reading back when a request comes from a thread or another loop, which must
  not wait for this loop, when the loop is closed, and when the loop leaves output unread because it is blocked. While
  no answer is awaited, the thread checks only every five seconds. (For so long, a blocked loop delays messages that the
  server sends by itself.)
- The thread then reads for a second before a loop reads again; each time that this happens, for twice as long.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from gaia.mcp.protocol.framing import OversizedLine
from gaia.mcp.rpc.channel import Outgoing
from gaia.runtime.handover import mark_engine_thread, on_engine_thread
from gaia.runtime.locks import TimedQueue, get_within
from gaia.runtime.threads import with_pauses

if TYPE_CHECKING:
    # It imports asyncio, which programs without it should not load.
    from gaia.runtime.loop_work import LoopWork

SLICE_SECONDS = 0.0005
"""The time that one turn of a loop may spend on the lines of one server. A single line may take longer."""

SLICE_LINES = 32
"""The number of lines, and so of released tasks, in one turn."""

_UNREAD_SECONDS = 0.1
"""Between two checks. A loop that does nothing between two successive ones, although there is output, is blocked."""

_SLEEP_SECONDS = 5.0

_MIN_AWAY_SECONDS = 1.0
_MAX_AWAY_SECONDS = 60.0

Line = bytes | OversizedLine


class PipeReader:
    """Reads one pipe to its end. `run` is for its thread; `requested` and `look` are for any thread.

    A signal handler may interrupt a loop while the loop takes lines. A blocking call that the handler makes then gets
    no answer before its deadline, because the thread cannot take over until the handler has returned.
    """

    def __init__(
        self,
        pipe: IO[bytes],
        read: Callable[[], bytes],
        lines: Callable[[bytes], Iterator[Line]],
        on_line: Callable[[Line], object],
        on_failure: Callable[[], object],
        awaits_answers: Callable[[], bool],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``read()`` returns the next chunk, empty at the end; ``lines(chunk)`` are the lines that the chunk completes.

        If `on_line` raises on a loop, `on_failure` is called at once and `run` raises the error. `awaits_answers` says
        whether an answer may still come to a request that was sent.
        """
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._read = read
        self._lines = lines
        self._on_line = on_line
        self._on_failure = on_failure
        self._awaits_answers = awaits_answers
        self._now = now
        self.expected: LoopWork | None = None
        """The loop whose task has made the last request; None: a thread has made it. Any thread sets it."""
        self._loop: LoopWork | None = None
        """The loop that reads; None while the thread reads. Only the thread changes it, while it holds the turn."""
        self._copy: IO[bytes] | None = None
        """A duplicate of the pipe, which the loop watches. It stays open until the loop has removed it: a blocked loop
        would otherwise watch a number that the thread has closed and the application uses again."""
        self._turn = threading.Lock()
        """Held while the loop reads and takes lines. The reading thread or loop owns the members below."""
        self._rest: Iterator[Line] = iter(())
        self._is_over = False
        self._is_paused = False
        self._steps = 0
        self._failure: BaseException | None = None
        self._is_shared = False
        self._wake: TimedQueue[None] = TimedQueue()
        self.sleeps = False
        """Whether the thread must be woken for its next check. The thread sets this, then reads whether answers are
        awaited. A thread that sends a request notes that an answer is awaited, then reads this. At least one of the two
        sees the other."""
        self._away_seconds = _MIN_AWAY_SECONDS
        """How long the thread reads after its next take-over. Only the thread uses this and the next two."""
        self._away_until = 0.0
        self._given_at = 0.0
        self._loops_can_read = hasattr(select, "poll")
        """False on Windows, and for loops without `add_reader`."""

    def look(self) -> None:
        """Let the thread check whether the loop reads. For any thread."""
        if self.sleeps:
            self._wake.put(None)

    def requested(self, item: Outgoing) -> None:
        """`item` is about to be written. Call this if the thread sleeps, or ``item.loop`` is not the expected one."""
        self.look()
        if item.id is None or item.bound:
            # The supervisor's own requests do not count.
            return
        self.expected = item.loop
        if self._loop is not None and self._loop is not item.loop:
            self._is_shared = True
            self._wake.put(None)

    def after_fork(self) -> None:
        """In a forked child, which has a copy of each descriptor: close the loop's copy."""
        if self._copy is not None:
            self._copy.close()

    # The thread.

    def run(self) -> None:
        with self._pipe:
            while not self._is_over:
                if self._loop is None:
                    self._read_here()
                else:
                    self._watch(self._loop)
        if self._failure is not None:
            raise self._failure

    def _read_here(self) -> None:
        chunk_lines = self._rest
        while True:
            for line in with_pauses(chunk_lines):
                self._on_line(line)
            loop = self.expected
            if loop is not None and self._loops_can_read and not loop.is_closed and self._now() >= self._away_until:
                self._give(loop)
                return
            chunk = self._read()
            if not chunk:
                self._is_over = True
                return
            chunk_lines = self._lines(chunk)

    def _give(self, loop: LoopWork) -> None:
        self._rest, self._is_paused, self._is_shared = iter(()), False, False
        self._given_at = self._now()
        self._loop = loop
        loop.post(lambda: self._begin(loop))

    def _watch(self, loop: LoopWork) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        unread, seen = 0, self._steps
        while unread < 2 and not self._is_shared and not loop.is_closed:
            with contextlib.suppress(queue.Empty):
                get_within(self._wake, _UNREAD_SECONDS)
            if self._is_over:
                return
            if self._steps != seen:
                unread, seen = 0, self._steps
            elif self._is_paused or poller.poll(0):
                unread += 1
            else:
                unread = 0
                self._sleep()
        self._take_over(loop)

    def _sleep(self) -> None:
        """Wait, at most five seconds, for a request: no event reports that the loop was closed."""
        self.sleeps = True
        if not self._awaits_answers():
            with contextlib.suppress(queue.Empty):
                get_within(self._wake, _SLEEP_SECONDS)
        self.sleeps = False

    def _take_over(self, loop: LoopWork) -> None:
        with self._turn:
            self._loop = None
            copy, self._copy = self._copy, None
        loop.post(lambda: self._leave(loop, copy))
        now = self._now()
        if now - self._given_at > _MAX_AWAY_SECONDS:
            self._away_seconds = _MIN_AWAY_SECONDS
        self._away_until = now + self._away_seconds
        self._away_seconds = min(2 * self._away_seconds, _MAX_AWAY_SECONDS)

    # The loop. If the loop is closed, the first two run on another thread, and at most close the copy.

    def _begin(self, loop: LoopWork) -> None:
        # The thread takes over, and so closes the pipe, only with the turn.
        with self._turn:
            if self._loop is not loop or not loop.is_current() or self._is_over:
                return
            try:
                self._copy = os.fdopen(os.dup(self._descriptor), "rb", buffering=0)
                # In an empty context, because the answers belong to no single task.
                contextvars.Context().run(self._add_reader, loop)
            except (NotImplementedError, OSError):
                # The thread will notice that the loop does not read.
                self._loops_can_read = False
                copy, self._copy = self._copy, None
                if copy is not None:
                    copy.close()

    def _leave(self, loop: LoopWork, copy: IO[bytes] | None) -> None:
        if copy is not None:
            if loop.is_current():
                self._remove_reader(loop, copy)
            copy.close()

    def _add_reader(self, loop: LoopWork) -> None:
        if (running := loop.loop) is not None and self._copy is not None:
            running.add_reader(self._copy.fileno(), self._step, loop, self._read_chunk)

    def _remove_reader(self, loop: LoopWork, copy: IO[bytes] | None) -> None:
        if (running := loop.loop) is not None and copy is not None and not copy.closed:
            running.remove_reader(copy.fileno())

    def _step(self, loop: LoopWork, step: Callable[[LoopWork], None]) -> None:
        # No code of the application runs here, and logging must not wait for the application.
        was_engine = on_engine_thread()
        mark_engine_thread()
        try:
            with self._turn:
                if self._loop is loop and not self._is_over:
                    self._steps += 1
                    step(loop)
        except BaseException as error:
            self._failure = error
            self._end(loop)
            self._on_failure()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                # A signal handler of the application has raised it on the application's loop.
                raise
        finally:
            mark_engine_thread(was_engine)

    def _read_chunk(self, loop: LoopWork) -> None:
        chunk = self._read()
        if chunk:
            self._rest = self._lines(chunk)
            self._take_slice(loop)
        else:
            self._end(loop)

    def _take_slice(self, loop: LoopWork) -> None:
        rest, until = self._rest, self._now() + SLICE_SECONDS
        line, taken = next(rest, None), 0
        while line is not None:
            self._on_line(line)
            line, taken = next(rest, None), taken + 1
            if line is not None and (taken >= SLICE_LINES or self._now() >= until):
                self._rest = itertools.chain((line,), rest)
                self._pause(loop)
                return
        if self._is_paused:
            self._is_paused = False
            self._add_reader(loop)

    def _pause(self, loop: LoopWork) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._remove_reader(loop, self._copy)
            self.look()
        loop.add_slice(lambda: self._step(loop, self._take_slice))

    def _end(self, loop: LoopWork) -> None:
        self._is_over = True
        # `_leave` closes the copy of a loop from which the thread has taken over.
        if self._loop is loop:
            copy, self._copy = self._copy, None
            self._leave(loop, copy)
        self._wake.put(None)
