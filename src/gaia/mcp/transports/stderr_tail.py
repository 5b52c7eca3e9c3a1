"""Keeps the end of what a server writes on its standard error, for error messages and status."""

from __future__ import annotations

import logging
from collections import deque

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import Redactor
from gaia.runtime.untrusted_text import clean

logger = get_logger(__name__)

_SHOWN_BYTES = 16 * 1024
_SHOWN_LINES = 20


class StderrTail:
    """The last 16 KiB of a stream. Fed by the thread that reads the pipe, read by any thread."""

    def __init__(self, server: str, redact: Redactor) -> None:
        self._server = server
        self._redact = redact
        self._kept_bytes = _SHOWN_BYTES + redact.longest
        self._lock = reentrant_lock()
        """Owns `_chunks`, `_size` and `_cut`."""
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._cut = False
        """Something came before what is kept."""
        self._line = b""
        """The line that is not complete yet, for the log. Belongs to the thread that reads."""

    def feed(self, chunk: bytes) -> None:
        with self._lock:
            self._chunks.append(chunk[-self._kept_bytes :])
            self._size += len(self._chunks[-1])
            self._cut = self._cut or len(chunk) > self._kept_bytes
            while self._size - len(self._chunks[0]) >= self._kept_bytes:
                self._size -= len(self._chunks.popleft())
                self._cut = True
        if logger.is_enabled_for(logging.DEBUG):
            # Whole lines, because a secret that was cut in two would not be recognised.
            lines, _, self._line = (self._line + chunk).rpartition(b"\n")
            self._log(lines)
            if len(self._line) > self._kept_bytes:
                self.finish()

    def finish(self) -> None:
        """The stream has ended."""
        self._log(self._line)
        self._line = b""

    def text(self) -> str:
        """The last lines, with secrets masked and control characters removed."""
        with self._lock:
            kept, cut = b"".join(self._chunks), self._cut
        # Once more after cleaning, which joins what terminal sequences kept apart.
        text = self._redact(clean(self._redact(kept.decode("utf-8", "replace"))))
        if cut:
            # The end of a secret whose beginning is gone.
            text = text[self._redact.longest :]
        return "\n".join(text.splitlines()[-_SHOWN_LINES:]).strip()

    def _log(self, text: bytes) -> None:
        if text:
            logger.debug("server_stderr", server=self._server, text=self._redact(text.decode("utf-8", "replace")))
