"""Writes to a server's standard input without ever blocking a caller.

A thread appends its message to the outbox. If no other thread is writing, it writes at once, which saves a thread
switch for a single call; otherwise the writing thread finds the new message when it is done. If the pipe is full, the
writer thread waits for the server to read and writes the rest.

Waiting messages are written together, about 256 KiB at a time. Messages that such a write did not begin go back into
the outbox: they were not sent, and their callers can still take them back.

A call whose deadline has passed is not written: the thread that watches the deadline ends it. Deadlines may have passed
unseen, because this process or the server was stopped for a while.

If tasks of an event loop make several calls in one turn, these are written together at the end of the turn, which wakes
the server once. A call that comes alone is written at once.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.transports.pipe_reader import PipeReader
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

if TYPE_CHECKING:
    from gaia.runtime.loop_work import LoopWork

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = get_logger(__name__)

_BATCH_BYTES = 256 * 1024
_POLL_MILLISECONDS = 100

_JOIN_SECONDS = 2.0

_ALONE_SECONDS = 100e-6
"""A call this long after the one before counts as the only one in its turn. Reading an answer takes half as long."""


class PipeWriter:
    """The only writer of one pipe. `send` may be called from any thread."""

    def __init__(
        self,
        pipe: IO[bytes],
        name: str,
        *,
        max_pending: int,
        on_broken: Callable[[], None],
        reader: PipeReader,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_broken` is called, from any thread, when the server has closed its end. `reader` reads the answers."""
        self._pipe = pipe
        self._reader = reader
        self._now = now
        self._sent_at = 0.0
        self._turn_of: LoopWork | None = None
        """The loop that writes the outbox at the end of its turn."""
        self._descriptor = pipe.fileno()
        self._max_pending = max_pending
        self._on_broken = on_broken
        self._outbox: deque[Outgoing] = deque()
        self._turn = threading.Lock()
        """Owns the pipe, `_rest` and taking from the outbox. A thread that holds it does not wait."""
        self._writing_in: int | None = None
        self._rest: memoryview | None = None
        self._broken = False
        self._closed = False
        self._enlarged = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Windows has no non-blocking pipes: there the writer thread does all writing.
        self._write_inline = os.name != "nt"
        if self._write_inline:
            os.set_blocking(self._descriptor, False)
        self._thread = EngineThread(self._run, f"{name}-writer", on_broken)
        self._thread.start()

    def send(self, item: Outgoing) -> bool:
        """Write `item` now, or as soon as the server reads again. False if too much is already waiting.

        Also False if a signal handler calls it that has interrupted this thread in the middle of a write: the call
        could be written only after the handler has returned.
        """
        outbox = self._outbox
        if len(outbox) >= self._max_pending:
            return False
        if self._writing_in is not None and self._writing_in == threading.get_ident() and item.id is not None:
            return False
        loop = item.loop
        reader = self._reader
        if loop is not reader.expected or reader.sleeps:
            reader.requested(item)
        outbox.append(item)
        if loop is not None and loop.is_current() and self._joins_turn(loop):
            return True
        if not self._write_inline:
            self._wake.put(None)
        elif not self._turn.locked():
            self._flush(threading.get_ident())
        return True

    def _joins_turn(self, loop: LoopWork) -> bool:
        now = self._now()
        is_alone = now - self._sent_at > _ALONE_SECONDS
        self._sent_at = now
        if self._turn_of is loop:
            return True
        if is_alone or not self._write_inline or (running := loop.loop) is None:
            return False
        # If a signal handler raises in between, there is one call of `_end_turn` too many, which does no harm, not too
        # few.
        running.call_soon(self._end_turn)
        self._turn_of = loop
        return True

    def _end_turn(self) -> None:
        """Write the outbox, unless another thread is writing, which then writes all of it."""
        self._turn_of = None
        try:
            if self._outbox and not self._turn.locked():
                self._flush(threading.get_ident())
        finally:
            # Also after an exception of a signal handler: the tasks that have sent requests wait for the answers.
            if self._outbox:
                self._wake.put(None)

    def close(self) -> bool:
        """Close the pipe; unwritten items are never written. False if the writer thread has not ended in time."""
        self._closed = self._broken = True
        self._wake.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        return not self._thread.is_alive()

    def after_fork(self) -> None:
        """In a forked child, which has no writer thread: close the child's copy of the pipe."""
        self._closed = self._broken = True
        self._pipe.close()

    def _run(self) -> None:
        reported = False
        try:
            while not self._closed:
                self._wake.get()
                while not self._flush(None):
                    self._wait_until_writable()
                if self._outbox:
                    self._wake.put(None)
                if self._broken and not reported and not self._closed:
                    reported = True
                    self._on_broken()
        finally:
            with self._turn:
                self._broken = True
                self._outbox.clear()
                self._rest = None
                try:
                    self._pipe.close()
                except OSError as error:
                    logger.debug("stdin_close_failed", error=str(error))

    def _wait_until_writable(self) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        while not self._closed and not poller.poll(_POLL_MILLISECONDS):
            pass

    def _flush(self, thread: int | None) -> bool:
        """Take the turn, and write until the outbox is empty (True) or the pipe full. `thread` is a caller's."""
        outbox, is_full = self._outbox, False
        try:
            # Not `acquire(False)`: an interrupt right after it would leave the lock locked for ever.
            with self._turn:
                try:
                    self._writing_in = thread
                    while not (self._broken or is_full) and (self._rest is not None or outbox):
                        data: bytes | memoryview
                        batch: list[tuple[Outgoing, int]]
                        if self._rest is not None:
                            batch, data = [], self._rest
                        elif len(outbox) > 1:
                            batch, data = self._next_batch()
                        else:
                            # A single call needs no joining.
                            item = outbox.popleft()
                            if self._now() >= item.deadline or not item.begin_write():
                                continue
                            data = item.frame
                            batch = [(item, len(data))]
                        try:
                            sent = os.write(self._descriptor, data)
                        except BlockingIOError:
                            sent = 0
                        except OSError:
                            sent, self._broken = 0, True
                        if sent == len(data):
                            self._rest = None
                            continue
                        self._keep_unsent(batch, data, sent)
                        is_full = not (self._broken or self._enlarge_once())
                    if self._broken:
                        outbox.clear()
                    self._writing_in = None
                except BaseException:
                    # An interrupt came between a write and its bookkeeping: it is unknown how much was written, so no
                    # further byte may ever follow.
                    self._broken = True
                    # Later calls of this thread wait for the next start of the server, as those of others do.
                    self._writing_in = None
                    raise
        finally:
            # The writer thread writes the rest, and items that others appended while they saw the turn taken.
            if thread is not None and (outbox or self._rest is not None or self._broken):
                self._wake.put(None)
        return not is_full

    def _next_batch(self) -> tuple[list[tuple[Outgoing, int]], bytes]:
        batch: list[tuple[Outgoing, int]] = []
        frames: list[bytes] = []
        size = 0
        outbox, now = self._outbox, self._now()
        while outbox and size < _BATCH_BYTES:
            item = outbox.popleft()
            if now < item.deadline and item.begin_write():
                frame = item.frame
                frames.append(frame)
                batch.append((item, len(frame)))
                size += len(frame)
        return batch, b"".join(frames)

    def _keep_unsent(self, batch: list[tuple[Outgoing, int]], data: bytes | memoryview, sent: int) -> None:
        """Keep the rest of the frame that was sent in part; items that were not begun go back into the outbox."""
        begun, end = 0, 0 if batch else len(data)
        while end < sent:
            end += batch[begun][1]
            begun += 1
        self._rest = memoryview(data)[sent:end] if end > sent else None
        unsent = [item for item, _ in batch[begun:]]
        for item in unsent:
            item.undo_write()
        self._outbox.extendleft(reversed(unsent))

    def _enlarge_once(self) -> bool:
        if self._enlarged:
            return False
        self._enlarged = True
        enlarge(self._descriptor)
        return True


_LARGE_BYTES = 1024 * 1024
"""The largest pipe that Linux allows an ordinary user (fs.pipe-max-size)."""


def enlarge(descriptor: int) -> None:
    """Make a pipe larger for large messages, where the system allows it. All pipes of a user share one allowance."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # Fails when the allowance is used up; the pipe then keeps its size.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _LARGE_BYTES)
