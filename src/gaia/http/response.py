"""`Response`: the status, the headers and the body of a response, which is read within limits."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType

from gaia.http.body import MAX_ERROR_BYTES, LimitedBody
from gaia.http.errors import HttpClientError
from gaia.http.request import HttpSettings
from gaia.http.response_parser import ResponseParser
from gaia.http.waits import Turn

_EVENTS = b"text/event-stream"


class Response:
    """A context for one exchange. Leaving it closes the connection, unless the body was read to its end."""

    __slots__ = (
        "_body",
        "_content",
        "_done",
        "_parser",
        "_pieces",
        "_receive",
        "_settings",
        "headers",
        "status",
    )

    def __init__(
        self,
        parser: ResponseParser,
        settings: HttpSettings,
        receive: Callable[[], Awaitable[None]],
        done: Callable[[], None],
    ) -> None:
        """`receive` feeds data to `parser`. Raises `ProtocolBroken` for an encoding that was not asked for."""
        self.status = parser.status
        self.headers = headers = parser.headers
        self._parser: ResponseParser | None = parser
        self._receive = receive
        self._done = done
        self._content: bytes | None = None
        self._settings = settings
        encoding = headers.get(b"content-encoding")
        self._body = None if encoding is None else self._limited(headers, encoding)
        """None until it is needed: nearly every answer to a call comes in one plain piece."""
        self._pieces: Iterator[bytes] | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_complete(self) -> bool:
        return self._parser is None or self._parser.complete

    def header(self, name: bytes) -> str | None:
        """The value of the header with this lower-case name. Several values are joined by commas."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read(self) -> bytes:
        """The whole body. Raises `TooLong`, `Interrupted` and the other `HttpClientError`s."""
        content = self.read_now()
        if content is None:
            pieces = []
            while piece := await self.chunk():
                pieces.append(piece)
            content = self._content = b"".join(pieces)
        return content

    def read_now(self) -> bytes | None:
        """The whole body, if it was read before, or has arrived in one short and plain piece. Never waits."""
        if self._content is None:
            parser = self._open()
            body = parser.body
            most = min(self._settings.max_bytes, MAX_ERROR_BYTES)
            if parser.complete and self._body is None and len(body) == 1 and len(body[0]) <= most:
                self._content = body.pop()
        return self._content

    async def chunk(self) -> bytes:
        """The next piece of the body, as it arrives; empty at the end. After `read`, all of it. Raises as `read`."""
        if self._content is not None:
            content, self._content = self._content, b""
            return content
        while True:
            parser = self._open()
            limited = self._body = self._body or self._limited(parser.headers, b"")
            if self._pieces is not None:
                for piece in self._pieces:
                    if not limited.is_plain:
                        await Turn()
                    if piece:
                        return piece
                self._pieces = None
                if limited.ended:
                    return b""
            if parser.body:
                data = b"".join(parser.body)
                parser.body.clear()
                self._pieces = limited.pieces(data)
            elif parser.complete:
                return b""
            else:
                await self._receive()

    def close(self) -> None:
        if self._parser is not None:
            self._parser = None
            self._done()

    def __enter__(self) -> Response:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _limited(self, headers: dict[bytes, bytes], encoding: bytes) -> LimitedBody:
        is_stream = headers.get(b"content-type", b"")[:17].lower() == _EVENTS
        # Each event of a stream has its own limit.
        limit = math.inf if is_stream else self._settings.max_bytes
        return LimitedBody(limit, status=self.status, encoding=encoding.decode("latin-1"))

    def _open(self) -> ResponseParser:
        if self._parser is None:
            raise HttpClientError("the response was closed before it was read")
        return self._parser
