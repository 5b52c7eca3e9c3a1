"""`Response`: what a server answered, with a body that is read within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from types import TracebackType

from gaia.http.errors import HttpClientError, ProtocolBroken, TooLong
from gaia.http.response_parser import ResponseParser
from gaia.http.settings import HttpSettings

MAX_ERROR_BYTES = 64 * 1024
"""The body of a response that reports no success is cut there: it is an error message or a redirect."""

_STEP_BYTES = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS
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
    """A context, which has to be left before the connection is used again. For one thread.

    A connection is used again if the body was read to its end; otherwise leaving the context closes it.
    """

    __slots__ = ("_content", "_cut", "_done", "_limit", "_parser", "_receive", "_size", "_unzip", "headers", "status")

    def __init__(
        self,
        parser: ResponseParser,
        settings: HttpSettings,
        receive: Callable[[], None],
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
        self._size = 0
        self._cut = not 200 <= parser.status < 300
        """Whether the body ends at the limit, instead of being an error."""
        kind = headers.get(b"content-type", b"")
        is_stream = kind[:17].lower() == _EVENTS
        limit = settings.max_stream_bytes if is_stream else settings.max_bytes
        self._limit = min(limit, MAX_ERROR_BYTES) if self._cut else limit
        encoding = headers.get(b"content-encoding")
        self._unzip = None if encoding is None else _decompressor(encoding)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_complete(self) -> bool:
        """Whether all of the body has come, read or not. Never waits."""
        return self._parser is None or self._parser.complete

    def read(self) -> bytes:
        """The whole body. Raises `TooLong`, `Interrupted` and the other `HttpClientError`s."""
        content = self._content
        if content is None:
            parser = self._open()
            body = parser.body
            if parser.complete and self._unzip is None and len(body) == 1 and len(body[0]) <= self._limit:
                # Nearly every answer to a call: it came in one piece.
                content = body.pop()
            else:
                content = b"".join(self.chunks())
            self._content = content
        return content

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces, as they come. Raises as `read`; what was read before is the first piece."""
        if self._content is not None:
            yield self._content
            return
        while True:
            parser = self._open()
            if parser.body:
                data = b"".join(parser.body)
                parser.body.clear()
                for piece in self._pieces(data):
                    self._size += len(piece)
                    if self._size > self._limit:
                        if not self._cut:
                            raise TooLong(f"the response is longer than {self._limit} bytes")
                        yield piece[: len(piece) - int(self._size - self._limit)]
                        return
                    yield piece
                if self._unzip is not None and self._unzip.eof:
                    # What follows the end of the compressed data would pile up in the decompressor.
                    return
            elif parser.complete:
                return
            else:
                self._receive()

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

    def _open(self) -> ResponseParser:
        if self._parser is None:
            raise HttpClientError("the response was closed before it was read")
        return self._parser

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """What `data` stands for, in small steps: a few hundred bytes of gzip can stand for gigabytes."""
        unzip = self._unzip
        if unzip is None:
            yield data
            return
        try:
            while piece := unzip.decompress(data, _STEP_BYTES):
                yield piece
                data = unzip.unconsumed_tail
        except zlib.error as error:
            raise ProtocolBroken(f"the response cannot be decompressed: {error}") from None


def _decompressor(encoding: bytes) -> zlib._Decompress | None:
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return None
    if name not in (b"gzip", b"x-gzip"):
        # Also several at once: gzip within gzip grows to a million times its size.
        shown = name[:100].decode("latin-1")
        raise ProtocolBroken(f"the response has the encoding {shown!r}, which was not asked for")
    return zlib.decompressobj(_GZIP)
