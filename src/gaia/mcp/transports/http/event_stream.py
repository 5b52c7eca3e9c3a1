"""One stream of server-sent events over several responses (2025-11-25, "Resumability and Redelivery")."""

from __future__ import annotations

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
        """Seconds to wait before asking for the rest, as the server wants it, within limits."""
        self._lines, self._fields = _Lines(), _Fields()
        self._fruitless = 0
        """How many requests in a row brought no message."""

    def pause(self, max_backoff: float) -> float:
        """Seconds to wait before asking for the rest: doubled up to `max_backoff` while requests bring nothing."""
        backoff = min(math.ldexp(self.retry, min(self._fruitless, 32)), max_backoff)
        self._fruitless += 1
        return max(self.retry, backoff)

    def begin(self, response: Response) -> None:
        """Read the next response. Raises `InvalidEvents` if it is not a stream of events."""
        if content_type(response) != "text/event-stream":
            raise InvalidEvents(f"the server sends {content_type(response) or 'no content type'} instead of events")
        self._lines, self._fields = _Lines(), _Fields()

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
        fields = self._fields
        for number, line in enumerate(self._lines.feed(chunk), 1):
            if line:
                fields.add(line)
                self._check_size(fields.size)
            else:
                event, self._fields = fields, _Fields()
                fields = self._fields
                if event.any:
                    self._reached(event)
                    yield event.name or b"message", _text(event.data)
            if not number % _LINES_A_TURN:
                yield None
        self._check_size(fields.size + self._lines.pending)

    def _check_size(self, size: int) -> None:
        if size > self._max_message_bytes:
            raise InvalidEvents(f"an event is longer than {self._max_message_bytes} bytes")

    def _reached(self, event: _Fields) -> None:
        identifier, retry = event.identifier, event.retry
        if identifier and len(identifier) <= _MAX_ID:
            text = identifier.decode("utf-8", "replace")
            # An id that does not fit into a header cannot be sent back, so the earlier one is kept.
            if text.isascii() and text.isprintable():
                self.last_id = text
        if retry is not None:
            try:
                milliseconds = int(retry)
            except ValueError:
                return
            # Compared as an integer, because it may be too large for a float.
            milliseconds = min(max(milliseconds, 0), int(_MAX_RETRY_SECONDS * 1000))
            self.retry = max(milliseconds / 1000, _MIN_RETRY_SECONDS)


def content_type(response: Response) -> str:
    """The content type of a response, in lower case and without parameters; empty if it has none."""
    return (response.header(b"content-type") or "").partition(";")[0].strip().lower()


class _Fields:
    """The fields of one event."""

    __slots__ = ("any", "data", "identifier", "name", "retry", "size")

    def __init__(self) -> None:
        self.name = b""
        self.data: list[bytes] = []
        self.identifier: bytes | None = None
        self.retry: bytes | None = None
        self.any = False
        """Whether any field has come; without fields there is no event."""
        self.size = 0
        """Bytes of all lines except comments."""

    def add(self, line: bytes) -> None:
        if line.startswith(b":"):
            return
        self.size += len(line)
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        self.any = True
        if field == b"data":
            self.data.append(value)
        elif field == b"event":
            self.name = value
        elif field == b"id":
            self.identifier = value
        elif field == b"retry":
            self.retry = value


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
