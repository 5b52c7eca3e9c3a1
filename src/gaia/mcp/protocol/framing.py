"""Newline framing over bytes (MCP specification, "stdio": messages are delimited by newlines).

Time is linear in the input, in chunks of any size. Memory is bounded: of a line over the limit only the two ends are
kept, which is enough to find the id of the answered request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

DEFAULT_MAX_LINE_BYTES = 256 * 1024 * 1024
_KEPT_BYTES = 1024
_SMALL_BYTES = 4096

# Only an id at the top level counts. It stands directly before `result` or `error`, or is the last member before the
# closing brace of a line that begins with one of these. Some servers return our ids as strings.
_ID = rb'"id"\s*:\s*(?:(\d{1,18})|"(\d{1,18})")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ANSWER = rb'"(?:result|error)"\s*:'
_ID_FIRST = rb"\s*\{\s*(?:%b,\s*)?%b,\s*(?:%b,\s*)?%b" % (_VERSION, _ID, _VERSION, _ANSWER)
_ANSWER_FIRST = rb"\s*\{\s*(?:%b,\s*)?%b" % (_VERSION, _ANSWER)
_ID_LAST = rb'[\]}"\w]\s*,\s*%b(?:,\s*%b)?\}\s*$' % (_ID, _VERSION)


class OversizedLine(msgspec.Struct, frozen=True):
    """The two ends of a line over the limit, and its size in bytes."""

    size: int
    head: bytes
    tail: bytes

    def answered_id(self) -> int | None:
        """The id of the request that this line answers, if its ends show it."""
        match = re.match(_ID_FIRST, self.head)
        if match is None and re.match(_ANSWER_FIRST, self.head):
            match = re.search(_ID_LAST, self.tail)
        return int(match[1] or match[2]) if match else None


class LineFramer:
    """Cuts a byte stream into lines. Not thread-safe: it belongs to the thread that reads the pipe."""

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._parts: list[bytes | bytearray] = []
        self._size = 0
        """The bytes of that line so far."""
        self._head = b""
        self._tail = b""

    def lines(self, chunk: bytes) -> Iterator[bytes | OversizedLine]:
        """Yield the lines that `chunk` completes, without LF or CRLF. All must be taken before the next chunk."""
        start, end = 0, chunk.find(b"\n")
        if 0 <= end == len(chunk) - 1 and not self._size and end <= self._max:
            # The answer to a lone call: one message and nothing else.
            return iter((chunk[:-1].removesuffix(b"\r"),))
        return self._cut(chunk, start, end)

    def _cut(self, chunk: bytes, start: int, end: int) -> Iterator[bytes | OversizedLine]:
        while end >= 0:
            if self._size or end - start > self._max:
                self._append(chunk[start:end])
                yield self._take()
            else:
                # Nearly every line arrives whole and ends with LF alone, so nothing has to be joined.
                line = chunk[start:end]
                yield line.removesuffix(b"\r")
            start = end + 1
            end = chunk.find(b"\n", start)
        if start < len(chunk):
            self._append(chunk[start:])

    def finish(self) -> bytes | OversizedLine | None:
        """The rest at the end of the stream: a line without its newline, or None."""
        return self._take() if self._size else None

    def _append(self, piece: bytes) -> None:
        was_kept = self._size <= self._max
        self._size += len(piece)
        if self._size <= self._max:
            self._keep(piece)
            return
        if was_kept:
            # Of two adjacent parts at least one is longer than `_KEPT_BYTES`. Joining all parts would double the
            # memory.
            self._head = b"".join(self._parts[:2])[:_KEPT_BYTES]
            self._tail = b"".join(self._parts[-2:])[-_KEPT_BYTES:]
            self._parts.clear()
        self._head += piece[: _KEPT_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-_KEPT_BYTES:])[-_KEPT_BYTES:]

    def _keep(self, piece: bytes) -> None:
        if len(piece) >= _SMALL_BYTES:
            self._parts.append(piece)
            return
        # Small pieces kept separately would take many times their size.
        if not self._parts or not isinstance(self._parts[-1], bytearray) or len(self._parts[-1]) >= _SMALL_BYTES:
            self._parts.append(bytearray())
        self._parts[-1] += piece

    def _take(self) -> bytes | OversizedLine:
        if self._size > self._max:
            line: bytes | OversizedLine = OversizedLine(self._size, self._head, self._tail)
        else:
            line = b"".join(self._parts).removesuffix(b"\r")
        self._parts.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
