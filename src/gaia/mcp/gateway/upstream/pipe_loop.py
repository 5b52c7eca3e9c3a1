"""The gateway's event loop as what reads and writes the pipes of servers that are processes."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable

from gaia.mcp.transports.loop_reader import PipeLoop
from gaia.runtime.loop_work import running_loop_work


class _PipeLoop:
    """See `PipeLoop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._context = contextvars.copy_context()
        """Not that of the supervisor which adds a reader: what comes of an answer does not belong to a restart."""
        self._turns = running_loop_work()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def add_reader(self, descriptor: int, on_readable: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._loop.add_reader, descriptor, on_readable, context=self._context)
        except RuntimeError:
            # It was closed meanwhile.
            return False
        return True

    def remove_reader(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)

    def is_current(self) -> bool:
        # The thread may have left the loop, and go on without it.
        return threading.get_ident() == self._thread and self._loop.is_running()

    def call_soon(self, task: Callable[[], object]) -> None:
        self._loop.call_soon(task)

    def call_by_turns(self, task: Callable[[], object]) -> None:
        self._turns.add_slice(task)


def running_pipe_loop() -> PipeLoop | None:
    """The loop that runs in this thread, if it can read pipes: on Windows, none can."""
    return None if sys.platform == "win32" else _PipeLoop(asyncio.get_running_loop())
