"""Keeps the end of what a server writes on its standard error, for error messages and status."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from gaia.log import get_logger

__all__ = ["StderrTail"]

logger = get_logger(__name__)

_KEPT_BYTES = 16 * 1024
_SHOWN_LINES = 20


class StderrTail:
    """The last 16 KiB of a stream. Fed by the thread that reads the pipe, read by any thread."""

    def __init__(self, server: str, redact: Callable[[str], str]) -> None:
        self._server = server
        self._redact = redact
        self._lock = threading.Lock()
        """Owns `_chunks` and `_size`."""
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        with self._lock:
            self._chunks.append(chunk[-_KEPT_BYTES:])
            self._size += len(self._chunks[-1])
            while self._size - len(self._chunks[0]) >= _KEPT_BYTES:
                self._size -= len(self._chunks.popleft())
        logger.debug("server_stderr", server=self._server, text=self._redact(chunk.decode("utf-8", "replace")))

    def text(self) -> str:
        """The last lines, with secrets masked and control characters removed."""
        with self._lock:
            kept = b"".join(self._chunks)[-_KEPT_BYTES:]
        lines = self._redact(kept.decode("utf-8", "replace")).splitlines()[-_SHOWN_LINES:]
        return "\n".join("".join(char for char in line if char.isprintable() or char == "\t") for line in lines).strip()
