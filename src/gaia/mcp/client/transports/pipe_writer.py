"""Writes to a server's standard input without ever blocking a caller.

Whoever has something to write appends it to the outbox. If nobody is writing, the same thread writes at once, which
saves a thread switch for a lone call; if somebody is, that one finds the new item when it is done. A pipe that is full
goes to the writer thread, which waits for the server to read on; callers meanwhile only append.

Everything that queued up leaves in one write.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import IO

from gaia.log import get_logger
from gaia.mcp.client.rpc.channel import Outgoing
from gaia.mcp.client.transports.pipe_size import enlarge

__all__ = ["PipeWriter"]

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
        """Owns the pipe, `_rest` and taking from the outbox. Nobody but the writer thread waits while holding it."""
        self._rest: memoryview | None = None
        self._broken = False
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
        elif self._turn.acquire(False):
            try:
                drained = self._flush()
            except BaseException:
                # An interrupt between a write and its bookkeeping: how much was written is unknown, so nothing may
                # ever follow it.
                self._break()
                raise
            finally:
                self._turn.release()
            # What others appended after our last look, while they still saw the turn taken.
            if not drained or outbox:
                self._wake.put(None)
        return True

    def close(self) -> None:
        """Close the pipe. What was not written by now never will be."""
        self._closed = True
        self._wake.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        with self._turn:
            self._broken = True
            self._outbox.clear()
            self._rest = None
            try:
                self._pipe.close()
            except OSError as error:
                logger.debug("stdin_close_failed", error=str(error))

    def _run(self) -> None:
        while True:
            self._wake.get()
            if self._closed:
                return
            with self._turn:
                while not self._flush():
                    if not self._wait_until_writable():
                        return
            if self._outbox:
                self._wake.put(None)

    def _wait_until_writable(self) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        while not self._closed:
            if poller.poll(_POLL_MILLISECONDS):
                return True
        return False

    def _flush(self) -> bool:
        """Write until the outbox is empty (True) or the pipe is full (False). The caller has the turn."""
        if self._rest is not None and not self._write_rest():
            return False
        while not self._broken:
            batch = self._next_batch()
            if not batch:
                return True
            data = batch[0].frame if len(batch) == 1 else b"".join([item.frame for item in batch])
            try:
                sent = os.write(self._descriptor, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                for item in batch:
                    item.undo_write()
                self._break()
                break
            if sent < len(data):
                self._rest = memoryview(data)[sent:]
                self._enlarge_once()
                if not self._write_rest():
                    return False
        self._outbox.clear()
        return True

    def _write_rest(self) -> bool:
        rest = self._rest
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                self._rest = rest
                return False
            except OSError:
                self._break()
                break
        self._rest = None
        return True

    def _enlarge_once(self) -> None:
        if not self._enlarged:
            self._enlarged = True
            enlarge(self._descriptor)

    def _next_batch(self) -> list[Outgoing]:
        batch: list[Outgoing] = []
        size = 0
        outbox = self._outbox
        while outbox and size < _BATCH_BYTES:
            item = outbox.popleft()
            if item.begin_write():
                batch.append(item)
                size += len(item.frame)
        return batch

    def _break(self) -> None:
        if not self._broken:
            self._broken = True
            self._on_broken()
