"""Newline framing over bytes (MCP specification, "stdio": messages are delimited by newlines).

Works on bytes, in time linear in what arrives however it is chunked, and in bounded memory: of a line over the limit
only the two ends are kept, which is enough to say whose answer it was.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["DEFAULT_MAX_LINE_BYTES", "LineFramer", "OversizedLine"]

DEFAULT_MAX_LINE_BYTES = 256 * 1024 * 1024
_KEPT_BYTES = 1024

# Only an id at the top level may be taken for the answer's id: before `result` at the start of the line, or as the
# last member before the one closing brace.
_ID_AT_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_ID_AT_END = re.compile(rb'[\]}"\w]\s*,\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class OversizedLine(msgspec.Struct, frozen=True):
    """A line that was longer than allowed. Its text is gone; `size` is in bytes."""

    size: int
    head: bytes
    tail: bytes

    def answered_id(self) -> int | None:
        """The id of the request that this line answered, if its ends show it."""
        if b'"method"' in self.head:
            return None
        match = _ID_AT_START.match(self.head) or _ID_AT_END.search(self.tail)
        return int(match[1]) if match else None


class LineFramer:
    """Cuts a byte stream into lines. Not thread-safe: it belongs to the thread that reads the pipe."""

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | OversizedLine]:
        """The lines that `chunk` completes, without their line ends (LF or CRLF)."""
        lines: list[bytes | OversizedLine] = []
        start, end = 0, chunk.find(b"\n")
        while end >= 0:
            # The end of a line that began earlier is joined to the rest anyway: a view spares copying it twice.
            self._append(memoryview(chunk)[start:end] if self._parts else chunk[start:end])
            lines.append(self._take())
            start = end + 1
            end = chunk.find(b"\n", start)
        self._append(chunk[start:])
        return lines

    def finish(self) -> bytes | OversizedLine | None:
        """What is left at the end of the stream: a line without its newline, or None."""
        return self._take() if self._size else None

    def _append(self, piece: bytes | memoryview) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._max:
            self._parts.append(piece)
            return
        if self._parts or not self._head:
            whole = b"".join([*self._parts, piece[:_KEPT_BYTES]])
            self._head, self._tail = whole[:_KEPT_BYTES], whole[-_KEPT_BYTES:]
            self._parts.clear()
        self._tail = (self._tail + bytes(piece[-_KEPT_BYTES:]))[-_KEPT_BYTES:]

    def _take(self) -> bytes | OversizedLine:
        if self._size > self._max:
            line: bytes | OversizedLine = OversizedLine(self._size, self._head, self._tail)
        else:
            joined = bytes(self._parts[0]) if len(self._parts) == 1 else b"".join(self._parts)
            line = joined[:-1] if joined.endswith(b"\r") else joined
        self._parts.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
