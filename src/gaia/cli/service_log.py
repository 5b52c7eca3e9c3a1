"""Logs of a command that runs until it is told to end: they must never hold it up."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys

from gaia.runtime import log
from gaia.runtime.handover import Handover

_END_SECONDS = 2.0
"""At the end of the process, for what is not written yet."""


class HandedOver(logging.Handler):
    """Writes records to a descriptor on a thread of its own. What does not fit its bounds is dropped and counted.

    The reader of a pipe may read no more. A write that waits for it must hold up neither an event loop, nor the
    handling of signals, nor the end of the process: so no lock is held meanwhile, not even that of a stream.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._handover = Handover("gaia-stderr", lambda _: None, self._dropped)

    def createLock(self) -> None:  # noqa: N802 - logging's name
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="replace")
        except Exception:  # noqa: BLE001 - what logging itself does
            self.handleError(record)
        else:
            self._handover.post(lambda: self._write(line), size=len(line))

    def wait(self, seconds: float) -> bool:
        """Return once all that was logged is written; False if it is not after so many seconds."""
        return self._handover.flush(seconds)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def _dropped(self, count: int) -> None:
        self._write(f"WARNING log_lines_dropped count={count}\n".encode())


def log_without_waiting() -> None:
    """Send what is logged by everything in this process to standard error, without waiting for its reader."""
    if sys.stderr is not sys.__stderr__ or sys.stderr is None:
        # It is another stream's, such as that of a test.
        return
    gaia = logging.getLogger("gaia")
    handler = HandedOver(sys.stderr.fileno())
    handler.setFormatter(next((each.formatter for each in gaia.handlers if each.formatter is not None), None))
    # With another handler below the root, an event would be there twice.
    gaia.handlers[:] = [logging.NullHandler()]
    logging.root.addHandler(handler)
    atexit.register(_end, handler)


def _end(handler: HandedOver) -> None:
    log.flush(_END_SECONDS)
    handler.wait(_END_SECONDS)
