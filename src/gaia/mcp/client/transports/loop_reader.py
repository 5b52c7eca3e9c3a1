"""`LoopReader`: reads a server's output on the event loop of a gateway instead of a thread of its own.

The loop that writes a call then also reads its answer, so that no call waits for another thread to be scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Protocol

from gaia.exception_text import exception_text, traceback_text
from gaia.handover import mark_engine_thread, on_engine_thread
from gaia.locks import Latch
from gaia.log import get_logger

__all__ = ["LoopReader", "PipeLoop"]

logger = get_logger(__name__)


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


class LoopReader:
    """Reads one pipe to its end, and closes it. `join` and `is_alive` are as those of a thread."""

    def __init__(
        self,
        pipe: IO[bytes],
        name: str,
        loop: PipeLoop,
        read: Callable[[], bytes],
        on_chunk: Callable[[bytes], object],
        on_end: Callable[[], object],
    ) -> None:
        """``read()`` returns what is there, and nothing at the end. The hooks run on the loop's thread."""
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._name = name
        self._loop = loop
        self._read = read
        self._on_chunk = on_chunk
        self._on_end = on_end
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
        # No code of the application runs here, and what is logged must not wait for it.
        was_engine = on_engine_thread()
        mark_engine_thread()
        try:
            chunk = self._read()
            if chunk:
                self._on_chunk(chunk)
            else:
                self._end()
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
