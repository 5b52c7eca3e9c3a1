"""Writes to a server's standard input without ever blocking a caller.

Whoever has something to write appends it to the outbox. If nobody is writing, the same thread writes at once, which
saves a thread switch for a lone call; if somebody is, that one finds the new item when it is done. What does not fit
into the pipe is left to the writer thread, which waits for the server to read on.

Everything that queued up leaves in one write. What such a write did not begin goes back into the outbox: it was not
sent, and whoever does not want it any more may still take it back.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import IO

from gaia.log import get_logger
from gaia.mcp.client.rpc.channel import Outgoing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["PipeWriter", "enlarge"]

logger = get_logger(__name__)

_BATCH_BYTES = 256 * 1024
_POLL_MILLISECONDS = 100
"""How soon a writer that waits for a full pipe notices that the channel is closing."""

_JOIN_SECONDS = 2.0


class PipeWriter:
    """The only writer of one pipe. `send` may be called from any thread."""

    def __init__(self, pipe: IO[bytes], name: str, *, max_pending: int, on_broken: Callable[[], None]) -> None:
        """`on_broken` is called, from any thread, when the server has closed its end."""
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._max_pending = max_pending
        self._on_broken = on_broken
        self._outbox: deque[Outgoing] = deque()
        self._turn = threading.Lock()
        """Owns the pipe, `_rest` and taking from the outbox. Nobody waits for anything while holding it."""
        self._rest: memoryview | None = None
        """Of a frame that has left in part."""
        self._broken = False
        """Nothing will be written any more."""
        self._closed = False
        self._enlarged = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Windows has no non-blocking pipes: there all writing is the thread's.
        self._write_inline = os.name != "nt"
        if self._write_inline:
            os.set_blocking(self._descriptor, False)
        self._thread = threading.Thread(target=self._run, name=f"{name}-writer", daemon=True)
        self._thread.start()

    def send(self, item: Outgoing) -> bool:
        """Write `item` now, or as soon as the server reads again. False if too much is already waiting."""
        outbox = self._outbox
        if len(outbox) >= self._max_pending:
            return False
        outbox.append(item)
        if not self._write_inline:
            self._wake.put(None)
        elif not self._turn.locked():
            try:
                # Not `acquire(False)`: an interrupt right after it would leave the lock locked for ever.
                with self._turn:
                    self._flush()
            finally:
                # The rest is the thread's, and so is what others appended while they still saw the turn taken.
                if outbox or self._rest is not None or self._broken:
                    self._wake.put(None)
        return True

    def close(self) -> None:
        """Close the pipe. What was not written by now never will be."""
        self._closed = self._broken = True
        self._wake.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def after_fork(self) -> None:
        """In a forked child, which has no writer thread: close our copy of the pipe."""
        self._closed = self._broken = True
        self._pipe.close()

    def _run(self) -> None:
        reported = False
        try:
            while not self._closed:
                self._wake.get()
                self._write_all()
                if self._broken and not reported and not self._closed:
                    reported = True
                    self._on_broken()
        finally:
            with self._turn:
                self._broken = True
                self._outbox.clear()
                self._rest = None
                self._close_pipe()

    def _write_all(self) -> None:
        while not self._closed:
            with self._turn:
                is_done = self._flush()
            if is_done:
                break
            self._wait_until_writable()
        if self._outbox:
            self._wake.put(None)

    def _wait_until_writable(self) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        while not self._closed and not poller.poll(_POLL_MILLISECONDS):
            pass

    def _flush(self) -> bool:
        """Write until the outbox is empty (True) or the pipe is full (False). The caller has the turn."""
        outbox = self._outbox
        try:
            while not self._broken:
                if self._rest is not None:
                    progressed = self._write_rest()
                elif outbox:
                    progressed = self._write_batch()
                else:
                    return True
                if not (progressed or self._enlarge_once()):
                    return False
        except BaseException:
            # An interrupt between a write and its bookkeeping: how much was written is unknown, so nothing may ever
            # follow it.
            self._broken = True
            raise
        outbox.clear()
        return True

    def _write_batch(self) -> bool:
        """Write what waits, or as much of it as one write should take. False if the pipe is full."""
        batch: list[Outgoing] = []
        frames: list[bytes] = []
        size = 0
        outbox = self._outbox
        while outbox and size < _BATCH_BYTES:
            item = outbox.popleft()
            if item.begin_write():
                frame = item.frame
                batch.append(item)
                frames.append(frame)
                size += len(frame)
        sent = self._write(frames[0] if len(frames) == 1 else b"".join(frames))
        if sent == size:
            return True
        end = begun = 0
        while end < sent:
            end += len(frames[begun])
            begun += 1
        if end > sent:
            self._rest = memoryview(frames[begun - 1])[sent - end :]
        for item in batch[begun:]:
            item.undo_write()
        self._outbox.extendleft(reversed(batch[begun:]))
        return self._broken

    def _write_rest(self) -> bool:
        """False if the pipe is full."""
        rest = self._rest
        assert rest is not None, "there is a rest to write"
        sent = self._write(rest)
        self._rest = rest[sent:] if sent < len(rest) else None
        return self._rest is None or self._broken

    def _write(self, data: bytes | memoryview) -> int:
        """How many bytes the pipe took; none of what follows a broken pipe."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError:
            self._broken = True
            return 0

    def _enlarge_once(self) -> bool:
        """Make a full pipe larger; False if that has been done before."""
        if self._enlarged:
            return False
        self._enlarged = True
        enlarge(self._descriptor)
        return True

    def _close_pipe(self) -> None:
        try:
            self._pipe.close()
        except OSError as error:
            logger.debug("stdin_close_failed", error=str(error))


_LARGE_BYTES = 1024 * 1024
"""The largest pipe that an ordinary user may have (Linux: fs.pipe-max-size)."""


def enlarge(descriptor: int) -> None:
    """Make a pipe larger where the system allows it, so that a large message needs fewer turns of the two processes.

    For pipes that have been full: all pipes of a user share one allowance.
    """
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # Not allowed any more once the allowance is used up; the pipe works as it is.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _LARGE_BYTES)
