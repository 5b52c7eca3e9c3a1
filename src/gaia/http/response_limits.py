"""`ResponseLimits`: how much of an HTTP response is read, for every client that talks to something outside.

A client gets the limits as an event hook, which httpx2 calls before anything reads the body: the client itself, an
authorization or an SDK. The size that counts is that of the decompressed body. Decompressing is done here, in small
steps, because a few hundred bytes of gzip can stand for gigabytes. Needs httpx2.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx2

ACCEPT_ENCODING = {"Accept-Encoding": "gzip"}
"""The header for a client with limits: other encodings are refused."""

MAX_ERROR_BYTES = 64 * 1024
"""The body of a response that reports no success is cut there: it is an error message or a redirect."""

_STEP_BYTES = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class ResponseTooLong(httpx2.ReadError):
    """The body is longer than the limits allow."""


@dataclass(frozen=True)
class ResponseLimits:
    """Limits for the responses of one client. Thread-safe."""

    max_bytes: int
    """Of the body of a success. A longer one raises `ResponseTooLong` where it is read."""
    max_stream_bytes: float
    """The same for a stream of events; infinite where each event has a limit of its own."""
    seconds: float = math.inf
    """For the whole body, from the headers on: `httpx2.ReadTimeout`. Looked at whenever something comes; the client's
    timeout is for silence. A client that is interrupted in another way needs none."""

    def apply(self, response: httpx2.Response) -> None:
        """The event hook ``response`` of a synchronous client. Raises `httpx2.DecodingError` for unknown encodings."""
        assert isinstance(response.stream, httpx2.SyncByteStream), "a synchronous client's"
        response.stream = _Limited(response.stream, self._reader(response))

    async def apply_async(self, response: httpx2.Response) -> None:
        """The same for an asynchronous client."""
        assert isinstance(response.stream, httpx2.AsyncByteStream), "an asynchronous client's"
        response.stream = _AsyncLimited(response.stream, self._reader(response))

    def _reader(self, response: httpx2.Response) -> _Reader:
        encoding = response.headers.pop("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            # Also several at once: gzip within gzip grows to a million times its size.
            raise httpx2.DecodingError(f"the response has the encoding {encoding[:100]!r}, which was not asked for")
        # The charset is the server's choice, too, and Python knows some that decompress (bz2) or take quadratic time.
        # Events and JSON are UTF-8; a byte order mark is no part of them.
        response.encoding = "utf-8-sig"
        is_stream = response.headers.get("Content-Type", "").partition(";")[0].strip().lower() == "text/event-stream"
        return _Reader(
            limit=self.max_stream_bytes if is_stream else self.max_bytes,
            is_cut=not response.is_success,
            deadline=time.monotonic() + self.seconds,
            is_gzip=encoding in ("gzip", "x-gzip"),
        )


class _Reader:
    """Decompresses one body and counts it. For one thread."""

    def __init__(self, *, limit: float, is_cut: bool, deadline: float, is_gzip: bool) -> None:
        self._limit = min(limit, MAX_ERROR_BYTES) if is_cut else limit
        self._is_cut = is_cut
        """Whether the body ends at the limit, instead of being an error."""
        self._deadline = deadline
        self._decompressor = zlib.decompressobj(_GZIP) if is_gzip else None
        self._size = 0
        self.ended = False
        """Nothing more is to be read."""

    def read(self, chunk: bytes) -> Iterator[bytes]:
        """What `chunk` stands for, in pieces."""
        if time.monotonic() > self._deadline:
            raise httpx2.ReadTimeout("the response takes too long")
        if self._decompressor is not None and self._decompressor.eof:
            # What follows the end of the compressed data would pile up in the decompressor.
            self.ended = True
            return
        for piece in self._decompressed(chunk):
            self._size += len(piece)
            excess = self._size - self._limit
            if excess > 0:
                self.ended = True
                if not self._is_cut:
                    raise ResponseTooLong(f"the response is longer than {self._limit} bytes")
                yield piece[: -int(excess)]
                return
            yield piece

    def _decompressed(self, chunk: bytes) -> Iterator[bytes]:
        decompressor = self._decompressor
        if decompressor is None:
            yield chunk
            return
        try:
            while piece := decompressor.decompress(chunk, _STEP_BYTES):
                yield piece
                chunk = decompressor.unconsumed_tail
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error


class _Limited(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, reader: _Reader) -> None:
        self._stream = stream
        self._reader = reader

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield from self._reader.read(chunk)
            if self._reader.ended:
                break

    def close(self) -> None:
        self._stream.close()


class _AsyncLimited(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, reader: _Reader) -> None:
        self._stream = stream
        self._reader = reader

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            for piece in self._reader.read(chunk):
                yield piece
            if self._reader.ended:
                break

    async def aclose(self) -> None:
        await self._stream.aclose()
