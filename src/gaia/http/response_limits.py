"""`ResponseLimits`: limits the size and the time of HTTP responses that clients of httpx2 read.

A client gets the limits as an event hook, which httpx2 calls before the client, an authorization or an SDK reads the
body. Needs httpx2.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx2

from gaia.http.body import LimitedBody
from gaia.http.errors import ProtocolBroken, TooLong

ACCEPT_ENCODING = {"Accept-Encoding": "gzip"}
"""For the headers of a client with limits, because the limits refuse other encodings."""


class ResponseTooLong(httpx2.ReadError):
    """The body is longer than the limits allow."""


@dataclass(frozen=True)
class ResponseLimits:
    """Limits for the responses of one client. Thread-safe."""

    max_bytes: int
    """Of the decompressed body of a success. Reading a longer one raises `ResponseTooLong`."""
    seconds: float = math.inf
    """For the body, from the headers on; then `httpx2.ReadTimeout`, as soon as data arrives."""

    def apply(self, response: httpx2.Response) -> None:
        """The event hook ``response`` of a synchronous client. Raises `httpx2.DecodingError` for unknown encodings."""
        assert isinstance(response.stream, httpx2.SyncByteStream), "a synchronous client's"
        response.stream = _Limited(response.stream, *self._body_of(response))

    async def apply_async(self, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream), "an asynchronous client's"
        response.stream = _AsyncLimited(response.stream, *self._body_of(response))

    def _body_of(self, response: httpx2.Response) -> tuple[LimitedBody, float]:
        encoding = response.headers.pop("Content-Encoding", "identity")
        # The server also chooses the charset, and Python knows some that decompress (bz2) or take quadratic time.
        # Events and JSON are UTF-8; a byte order mark does not belong to them.
        response.encoding = "utf-8-sig"
        try:
            body = LimitedBody(self.max_bytes, status=response.status_code, encoding=encoding)
        except ProtocolBroken as error:
            raise httpx2.DecodingError(str(error)) from None
        return body, time.monotonic() + self.seconds


def _read(body: LimitedBody, deadline: float, chunk: bytes) -> Iterator[bytes]:
    if time.monotonic() > deadline:
        raise httpx2.ReadTimeout("the response takes too long")
    try:
        yield from body.pieces(chunk)
    except TooLong as error:
        raise ResponseTooLong(str(error)) from None
    except ProtocolBroken as error:
        raise httpx2.DecodingError(str(error)) from None


class _Limited(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, body: LimitedBody, deadline: float) -> None:
        self._stream, self._body, self._deadline = stream, body, deadline

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield from _read(self._body, self._deadline, chunk)
            if self._body.ended:
                break

    def close(self) -> None:
        self._stream.close()


class _AsyncLimited(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, body: LimitedBody, deadline: float) -> None:
        self._stream, self._body, self._deadline = stream, body, deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            for piece in _read(self._body, self._deadline, chunk):
                yield piece
            if self._body.ended:
                break

    async def aclose(self) -> None:
        await self._stream.aclose()
