"""Lines on a server's standard output that are not JSON-RPC: counted, with a sample for people."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gaia.mcp.observation.request_spans import Observer
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

SAMPLE_LENGTH = 200
"""Characters of a server's output that are shown in log events and in its status."""

_REDACTED_BYTES = 16 * 1024
"""Bytes that are searched for secrets before the sample is cut: a secret that is cut in half is not recognised."""


class UnparsedOutput(msgspec.Struct, frozen=True):
    lines: int = 0
    size: int = 0
    """Bytes."""
    last: str = ""

    def plus(self, later: UnparsedOutput) -> UnparsedOutput:
        return UnparsedOutput(self.lines + later.lines, self.size + later.size, later.last or self.last)


class UnparsedCounter:
    """Thread-safe. `total` is immutable and replaced as a whole."""

    def __init__(self, server: str, observer: Observer, redact: Callable[[str], str]) -> None:
        self.total = UnparsedOutput()
        self._server = server
        self._observer = observer
        self._redact = redact
        self._lock = reentrant_lock()

    def count(self, size: int, head: bytes) -> None:
        sample = self._redact(head[:_REDACTED_BYTES].decode("utf-8", "replace"))[:SAMPLE_LENGTH]
        with self._lock:
            self.total = total = UnparsedOutput(self.total.lines + 1, self.total.size + size, sample)
        if total.lines == 1:
            logger.warning("noise_on_stdout", server=self._server, sample=sample)
        self._observer.noise_received(size)
