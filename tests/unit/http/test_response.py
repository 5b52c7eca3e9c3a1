"""Bodies: whole or in pieces, compressed or not, and never longer than the limits allow."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator

import httpx2
import pytest

from gaia.http import response_limits
from gaia.http.body import MAX_ERROR_BYTES
from gaia.http.errors import HttpClientError, ProtocolBroken, TooLong
from gaia.http.request import HttpSettings
from gaia.http.response import Response
from gaia.http.response_limits import ResponseLimits, ResponseTooLong
from gaia.http.response_parser import ResponseParser
from tests.memory import measured_memory
from tests.unit.http.conftest import BlockingResponse

EVENTS = b"Content-Type: text/event-stream; charset=utf-8\r\n"


def gzipped(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush()


class Given:
    """A response with this body, which comes in these pieces."""

    def __init__(self, pieces: Iterable[bytes], headers: bytes = b"", status: int = 200, max_bytes: int = 1000) -> None:
        self.left = 0
        self.received = 0
        parser = ResponseParser()
        rest = iter(pieces)

        async def receive() -> None:
            data = next(rest, b"")
            self.received += len(data)
            parser.feed(data)

        def done() -> None:
            self.left += 1

        parser.feed(b"HTTP/1.1 %d X\r\n%b\r\n" % (status, headers))
        self.response = BlockingResponse(Response(parser, HttpSettings(max_bytes=max_bytes), receive, done))


class TestRead:
    def test_the_whole_body_as_often_as_it_is_asked_for(self) -> None:
        response = Given([b"hel", b"lo"]).response
        assert [response.read(), response.read(), b"".join(response.chunks())] == [b"hello"] * 3

    def test_in_one_piece_or_none(self) -> None:
        assert Given([b"hello"], b"Content-Length: 5\r\n").response.read() == b"hello"
        assert Given([], b"Content-Length: 0\r\n").response.read() == b""

    def test_in_pieces_as_they_come(self) -> None:
        given = Given([b"hel", b"lo"])
        chunks = given.response.chunks()
        assert (next(chunks), given.received) == (b"hel", 3)
        assert list(chunks) == [b"lo"]

    def test_it_says_when_all_of_it_has_come(self) -> None:
        whole, half = Given([b"hello"], b"Content-Length: 5\r\n").response, Given([b"hel"]).response
        assert not whole.is_complete
        assert whole.read() == b"hello"
        assert whole.is_complete
        next(half.chunks())
        assert not half.is_complete
        half.close()
        assert half.is_complete

    def test_leaving_it_is_told_once_and_ends_it(self) -> None:
        given = Given([b"hello"])
        with given.response as response:
            pass
        response.close()
        assert given.left == 1
        with pytest.raises(HttpClientError, match="closed"):
            response.read()


class TestLimits:
    @pytest.mark.parametrize("piece", [1, 7, 1001])
    def test_a_body_that_is_too_long_is_an_error(self, piece: int) -> None:
        body = bytes(1001)
        pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
        with pytest.raises(TooLong, match="longer than 1000 bytes"):
            Given(pieces).response.read()
        assert len(Given(pieces, max_bytes=1001).response.read()) == 1001

    def test_one_that_is_announced_too_and_it_is_not_read_any_further(self) -> None:
        with pytest.raises(TooLong):
            Given([bytes(1001)], b"Content-Length: 1001\r\n").response.read()
        given = Given([bytes(100)] * 1000)
        with pytest.raises(TooLong):
            given.response.read()
        assert given.received == 1100

    @pytest.mark.parametrize("headers", [EVENTS, EVENTS.replace(b"text", b"Text")])
    def test_a_stream_of_events_has_none(self, headers: bytes) -> None:
        assert len(Given([bytes(5000)], headers).response.read()) == 5000

    def test_a_refusal_is_cut(self) -> None:
        given = Given([bytes(40_000)] * 10, status=500, max_bytes=1_000_000)
        assert not given.response.is_success
        assert len(given.response.read()) == MAX_ERROR_BYTES
        assert given.received == 80_000
        assert len(Given([bytes(40_000)] * 10, EVENTS, status=404).response.read()) == MAX_ERROR_BYTES


class TestGzip:
    HEADERS = b"Content-Encoding: gzip\r\n"

    @pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"x-gzip"])
    def test_it_is_decompressed_however_it_is_cut(self, encoding: bytes) -> None:
        data = gzipped(b"hello" * 100)
        for size in (1, 5, len(data)):
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            response = Given(pieces, b"Content-Encoding: %b\r\n" % encoding).response
            assert response.read() == b"hello" * 100

    def test_what_counts_is_what_it_stands_for(self) -> None:
        bomb = gzipped(bytes(10_000_000))
        assert len(bomb) < 50_000
        with pytest.raises(TooLong):
            Given([bomb], self.HEADERS).response.read()
        assert len(Given([bomb], self.HEADERS, status=500, max_bytes=10**9).response.read()) == MAX_ERROR_BYTES

    def test_a_stream_of_it_comes_in_small_steps(self) -> None:
        chunks = Given([gzipped(bytes(10_000_000))], self.HEADERS + EVENTS).response.chunks()
        assert len(next(chunks)) <= 64 * 1024

    def test_what_follows_its_end_is_not_kept(self) -> None:
        given = Given([gzipped(b"hello"), *[b"x" * 1000] * 1000], self.HEADERS)
        assert given.response.read() == b"hello"
        assert given.received < 2000

    def test_what_is_none_is_an_error(self) -> None:
        with pytest.raises(ProtocolBroken, match="cannot be decompressed"):
            Given([b"hello"], self.HEADERS).response.read()

    @pytest.mark.parametrize("encoding", [b"br", b"deflate", b"gzip, gzip", b"zstd"])
    def test_other_encodings_were_not_asked_for_but_none_is_one(self, encoding: bytes) -> None:
        with pytest.raises(ProtocolBroken, match="not asked for"):
            Given([], b"Content-Encoding: %b\r\n" % encoding)
        assert Given([b"hello"], b"Content-Encoding: identity\r\n").response.read() == b"hello"


MIB = 1024 * 1024
LIMITS = ResponseLimits(MIB)
STREAM = {"Content-Type": "text/event-stream"}
GZIP = {"Content-Encoding": "gzip"}


class Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """Counts what is read of it."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.read = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.read += len(chunk)
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def get(body: Body, limits: ResponseLimits = LIMITS, status: int = 200, **headers: str) -> httpx2.Response:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            status, headers={key.replace("_", "-"): value for key, value in headers.items()}, stream=body
        )

    with httpx2.Client(transport=httpx2.MockTransport(answer), event_hooks={"response": [limits.apply]}) as client:
        return client.get("http://host/")


def bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    return b"".join(compressor.compress(bytes(MIB)) for _ in range(size // MIB)) + compressor.flush()


class TestSize:
    def test_what_fits_arrives_as_it_is(self) -> None:
        body = Body([b"a" * MIB])
        assert get(body).content == b"a" * MIB
        assert body.closed

    def test_a_body_that_is_too_long_is_not_read_to_its_end(self) -> None:
        body = Body(itertools.repeat(b"a" * 1024))
        with pytest.raises(ResponseTooLong, match="longer than 1048576 bytes"):
            get(body)
        assert body.read <= MIB + 1024
        assert body.closed

    def test_one_without_success_is_cut(self) -> None:
        for status in (307, 401, 500):
            body = Body(itertools.repeat(b"a" * 1000))
            assert len(get(body, status=status).content) == MAX_ERROR_BYTES
            assert body.closed

    def test_an_asynchronous_client_has_the_same_limits(self) -> None:
        body = Body(itertools.repeat(b"a" * 1024))

        async def run() -> None:
            transport = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=body))
            async with httpx2.AsyncClient(
                transport=transport, event_hooks={"response": [LIMITS.apply_async]}
            ) as client:
                await client.get("http://host/")

        with pytest.raises(ResponseTooLong):
            asyncio.run(run())
        assert body.read <= MIB + 1024
        assert body.closed


class TestCompression:
    def test_gzip_is_decompressed_however_it_is_cut(self) -> None:
        text = b"".join(b"%d " % number for number in range(20_000))
        compressed = gzip.compress(text)
        body = Body(compressed[at : at + 100] for at in range(0, len(compressed), 100))
        response = get(body, **GZIP)
        assert response.content == text
        assert body.read == len(compressed), "or the connection cannot be used again"

    def test_little_that_stands_for_much_takes_no_memory(self) -> None:
        body = bomb(64 * MIB)
        with measured_memory() as memory, pytest.raises(ResponseTooLong):
            get(Body([body]), **GZIP)
        assert memory.peak < 4 * MIB

    def test_nor_does_an_error(self) -> None:
        body = bomb(64 * MIB)
        with measured_memory() as memory:
            assert len(get(Body([body]), status=500, **GZIP).content) == MAX_ERROR_BYTES
        assert memory.peak < MIB

    @pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "zstd", "deflate"])
    def test_no_other_encoding_is_undone(self, encoding: str) -> None:
        with pytest.raises(httpx2.DecodingError, match="was not asked for"):
            get(Body([gzip.compress(gzip.compress(b"a"))]), Content_Encoding=encoding)

    def test_what_is_no_gzip_is_an_error(self) -> None:
        with pytest.raises(httpx2.DecodingError):
            get(Body([b"hello"]), **GZIP)

    def test_what_follows_the_end_is_not_kept(self) -> None:
        body = Body(itertools.chain([gzip.compress(b"data: a\n\n")], itertools.repeat(b"junk")))
        assert get(body, **GZIP, **STREAM).content == b"data: a\n\n"
        assert body.read < 100


class TestText:
    @pytest.mark.parametrize("charset", ["bz2", "idna", "utf-16", "rot13"])
    def test_a_charset_that_the_server_chooses_decides_nothing(self, charset: str) -> None:
        assert get(Body(["{ü".encode()]), Content_Type=f"text/html; charset={charset}").text == "{ü"

    def test_a_byte_order_mark_is_no_part_of_it(self) -> None:
        assert get(Body([b"\xef\xbb", b"\xbfdata"])).text == "data"


class TestTime:
    def test_a_body_that_keeps_coming_ends_nevertheless(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = itertools.count()
        monkeypatch.setattr(response_limits, "time", type("Time", (), {"monotonic": lambda: float(next(clock))}))
        body = Body(itertools.repeat(b"a"))
        with pytest.raises(httpx2.ReadTimeout):
            get(body, ResponseLimits(MIB, seconds=100))
        assert 98 < body.read < 103
        assert body.closed
