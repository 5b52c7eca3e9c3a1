"""A stream of server-sent events, over as many responses as it takes (2025-11-25, "Resumability and Redelivery")."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gaia.http.errors import ProtocolBroken
from gaia.http.response import Response

_RETRY_SECONDS = 1.0
_MIN_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 300.0
_MAX_ID = 4096
"""Characters. The id is a header of the request for the rest, and servers take some 8 KiB of headers."""

_LINES_A_TURN = 64

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class InvalidEvents(ProtocolBroken):
    """What came is no stream of events, or one of them is too long."""


class EventStream:
    """The place that was reached in one stream. For one thread at a time."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self.last_id: str | None = None
        """Of the last event that had one: from there the server can go on."""
        self.retry = _RETRY_SECONDS
        """How many seconds the server wants to be left alone before it is asked for the rest, within limits."""
        self._lines, self._fields = _Lines(), _Fields()
        self._fruitless = 0
        """How many times in a row the server was asked without sending a message."""

    def pause(self, max_backoff: float) -> float:
        """How many seconds to wait now before asking for the rest.

        Longer each time that nothing came, up to `max_backoff` or what the server asked for.
        """
        backoff = min(math.ldexp(self.retry, min(self._fruitless, 32)), max_backoff)
        self._fruitless += 1
        return max(self.retry, backoff)

    def begin(self, response: Response) -> None:
        """Read another response from now on. Raises `InvalidEvents` for anything but events."""
        if content_type(response) != "text/event-stream":
            raise InvalidEvents(f"the server sends {content_type(response) or 'no content type'} instead of events")
        self._lines, self._fields = _Lines(), _Fields()

    def messages(self, chunk: bytes) -> Iterator[bytes | None]:
        """The data of the events that are messages, and None as `events` does."""
        for event in self.events(chunk):
            if event is None:
                yield None
            # An event without data only says from where to go on.
            elif event[0] == b"message" and event[1]:
                self._fruitless = 0
                yield event[1]

    def events(self, chunk: bytes) -> Iterator[tuple[bytes, bytes] | None]:
        """Name and data of each event that ends in the next piece of the response; comments are left out.

        None after each 64 lines: others should have their turn. Raises `InvalidEvents`.
        """
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
            # An id that no header can carry cannot be asked for: the last one that can is kept.
            if text.isascii() and text.isprintable():
                self.last_id = text
        if retry is not None:
            try:
                milliseconds = int(retry)
            except ValueError:
                return
            # Compared as an integer: it may be too large for a float.
            milliseconds = min(max(milliseconds, 0), int(_MAX_RETRY_SECONDS * 1000))
            self.retry = max(milliseconds / 1000, _MIN_RETRY_SECONDS)


def content_type(response: Response) -> str:
    """What the body of a response is, in lower case and without parameters; empty if the server does not say it."""
    return (response.headers.get("content-type") or "").partition(";")[0].strip().lower()


class _Fields:
    """Those of one event."""

    __slots__ = ("any", "data", "identifier", "name", "retry", "size")

    def __init__(self) -> None:
        self.name = b""
        self.data: list[bytes] = []
        self.identifier: bytes | None = None
        self.retry: bytes | None = None
        self.any = False
        """Whether any field has come: if not, there is no event."""
        self.size = 0
        """Bytes of all lines but comments."""

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
    """Lines of chunks of bytes, without their ends, which are CR, LF or both. In linear time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """Of the line that has not ended."""
        self.pending = 0
        """The length of these, in bytes."""
        self._after_cr = False
        """The last chunk ended with a CR; an LF that comes now belongs to it."""
        self._start: bytes | None = b""
        """What has come while it may be the beginning of a byte order mark; None after that."""

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
    """The data of an event, as UTF-8."""
    data = lines[0] if len(lines) == 1 else b"\n".join(lines)
    return data if data.isascii() else data.decode("utf-8", "replace").encode()
