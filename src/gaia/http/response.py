"""`Response`: what a server answered, with a body that is read within limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType

from gaia.http.body import MAX_ERROR_BYTES, LimitedBody
from gaia.http.errors import HttpClientError
from gaia.http.request import HttpSettings
from gaia.http.response_parser import ResponseParser
from gaia.http.waits import Turn

_EVENTS = b"text/event-stream"


class Headers:
    """The headers of a response. Immutable."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[bytes, bytes]) -> None:
        """`values` by lower-case name."""
        self._values = values

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a header, whatever the case of its name; several values are joined by commas."""
        value = self._values.get(name.lower().encode("latin-1", "replace"))
        return default if value is None else value.decode("latin-1")

    def items(self) -> Iterator[tuple[str, str]]:
        """Lower-case names and values; several of Set-Cookie are lines of one."""
        return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._values.items())

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


class Response:
    """A context, which has to be left before the connection is used again. For one exchange.

    A connection is used again if the body was read to its end; otherwise leaving the context closes it.
    """

    __slots__ = (
        "_body",
        "_content",
        "_done",
        "_is_told",
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
        """`receive` waits for data and feeds it to `parser`; `done` is called when the context is left.

        Raises `ProtocolBroken` for an encoding that was not asked for.
        """
        self.status = parser.status
        headers = parser.headers
        self.headers = Headers(headers)
        self._parser: ResponseParser | None = parser
        self._receive = receive
        self._done = done
        self._content: bytes | None = None
        """The whole body, once it was read at once."""
        self._is_told = False
        """Whether that was given in one piece, too."""
        self._settings = settings
        encoding = headers.get(b"content-encoding")
        self._body = None if encoding is None else self._limited(headers, encoding)
        """None before it is needed: nearly every answer to a call comes in one plain piece."""
        self._pieces: Iterator[bytes] | None = None
        """What is left of the data that came last."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_complete(self) -> bool:
        """Whether all of the body has come, read or not. Never waits."""
        return self._parser is None or self._parser.complete

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
        """The whole body, if it was read before, or has come in one short and plain piece. Never waits."""
        if self._content is None:
            parser = self._open()
            body = parser.body
            most = min(self._settings.max_bytes, MAX_ERROR_BYTES)
            if parser.complete and self._body is None and len(body) == 1 and len(body[0]) <= most:
                self._content = body.pop()
        return self._content

    async def chunk(self) -> bytes:
        """The next piece of the body, as it comes; nothing at its end. Raises as `read`.

        After `read`, the whole body is the first piece.
        """
        if self._content is not None:
            content, self._is_told = b"" if self._is_told else self._content, True
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
        """Leave the context. Harmless when it was left."""
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
        limit = self._settings.max_stream_bytes if is_stream else self._settings.max_bytes
        return LimitedBody(limit, status=self.status, encoding=encoding.decode("latin-1"))

    def _open(self) -> ResponseParser:
        if self._parser is None:
            raise HttpClientError("the response was closed before it was read")
        return self._parser
