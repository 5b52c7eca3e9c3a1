"""How much of a response is read, whatever it claims to be."""

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
from gaia.http.response_limits import ResponseLimits, ResponseTooLong
from tests.memory import measured_memory

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
