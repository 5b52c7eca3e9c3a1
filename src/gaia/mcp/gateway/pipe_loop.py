"""`PipeLoop`: the gateway's event loop as what reads the output of servers that are processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from gaia.mcp.client.transports.loop_reader import ReadingLoop

__all__ = ["PipeLoop", "running_pipe_loop"]


class PipeLoop:
    """See `ReadingLoop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def add_reader(self, descriptor: int, on_readable: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._loop.add_reader, descriptor, on_readable)
        except RuntimeError:
            # It was closed meanwhile.
            return False
        return True

    def remove_reader(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)


def running_pipe_loop() -> ReadingLoop | None:
    """The loop that runs in this thread, if it can read pipes: on Windows, none can."""
    return None if sys.platform == "win32" else PipeLoop(asyncio.get_running_loop())
