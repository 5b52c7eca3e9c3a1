"""One stream of server-sent events over several responses (2025-11-25, "Resumability and Redelivery")."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from gaia.http.errors import ProtocolBroken
from gaia.http.response import Response

_RETRY_SECONDS = 1.0
_MIN_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 300.0
_MAX_ID = 4096
"""Characters. The id is sent back in a header, and servers accept about 8 KiB of headers."""

_LINES_A_TURN = 64
_MEANINGFUL = frozenset((b"data", b"event", b"id", b"retry"))

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class InvalidEvents(ProtocolBroken):
    """The response is not a stream of events, or an event is too long."""


class EventStream:
    """The position in one stream. For one thread at a time."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self.last_id: str | None = None
        """The id of the last event that had one: the server can continue after it."""
        self.retry = _RETRY_SECONDS
        """Seconds to wait before asking for the rest: the server's wish, within limits."""
        self._lines = _Lines()
        self._fields: dict[bytes, list[bytes]] = {}
        self._size = 0
        """Bytes of the lines of the incomplete event, except comments."""
        self._fruitless = 0

    def pause(self, max_backoff: float) -> float:
        """Seconds to wait before asking for the rest: doubled up to `max_backoff` while requests bring no message."""
        backoff = min(math.ldexp(self.retry, min(self._fruitless, 32)), max_backoff)
        self._fruitless += 1
        return max(self.retry, backoff)

    def begin(self, response: Response) -> None:
        """Read the next response. Raises `InvalidEvents` if it is not a stream of events."""
        if content_type(response) != "text/event-stream":
            raise InvalidEvents(f"the server sends {content_type(response) or 'no content type'} instead of events")
        self._lines, self._fields, self._size = _Lines(), {}, 0

    def messages(self, chunk: bytes) -> Iterator[bytes | None]:
        """The data of the events that are messages; None as in `events`."""
        for event in self.events(chunk):
            if event is None:
                yield None
            # An event without data only gives the position.
            elif event[0] == b"message" and event[1]:
                self._fruitless = 0
                yield event[1]

    def events(self, chunk: bytes) -> Iterator[tuple[bytes, bytes] | None]:
        """Name and data of each event that ends in `chunk`, and None after each 64 lines. Raises `InvalidEvents`."""
        for number, line in enumerate(self._lines.feed(chunk), 1):
            if not line and self._fields:
                fields, self._fields, self._size = self._fields, {}, 0
                self._reached(fields)
                yield fields.get(b"event", [b""])[-1] or b"message", _text(fields.get(b"data", [b""]))
            elif line and not line.startswith(b":"):
                field, _, value = line.partition(b":")
                values = self._fields.setdefault(field if field in _MEANINGFUL else b"", [])
                # An unknown field is not kept, but it makes an event.
                values += [value.removeprefix(b" ")] if field in _MEANINGFUL else []
                self._size += len(line)
                self._check_size(self._size)
            if not number % _LINES_A_TURN:
                yield None
        self._check_size(self._size + self._lines.pending)

    def _check_size(self, size: int) -> None:
        if size > self._max_message_bytes:
            raise InvalidEvents(f"an event is longer than {self._max_message_bytes} bytes")

    def _reached(self, fields: dict[bytes, list[bytes]]) -> None:
        identifier = fields.get(b"id", [b""])[-1]
        # An id that does not fit into a header cannot be sent back, so the earlier one is kept.
        if 0 < len(identifier) <= _MAX_ID and identifier.isascii() and (text := identifier.decode()).isprintable():
            self.last_id = text
        with contextlib.suppress(ValueError):
            # Compared as an integer, because it may be too large for a float.
            milliseconds = min(max(int(fields.get(b"retry", [b""])[-1]), 0), int(_MAX_RETRY_SECONDS * 1000))
            self.retry = max(milliseconds / 1000, _MIN_RETRY_SECONDS)


def content_type(response: Response) -> str:
    return (response.header(b"content-type") or "").partition(";")[0].strip().lower()


class _Lines:
    """Splits chunks into lines without their ends, which are CR, LF or both. In linear time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.pending = 0
        """The length of these parts in bytes."""
        self._after_cr = False
        """Whether the last chunk ended with a CR; an LF that comes next belongs to it."""
        self._start: bytes | None = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(chunk):
                self._start = chunk
                return []
            self._start = None
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        last = lines.pop()
        if lines and self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts, self.pending = [], 0
        if last:
            self._parts.append(last)
            self.pending += len(last)
        return lines


def _text(lines: list[bytes]) -> bytes:
    data = lines[0] if len(lines) == 1 else b"\n".join(lines)
    return data if data.isascii() else data.decode("utf-8", "replace").encode()
