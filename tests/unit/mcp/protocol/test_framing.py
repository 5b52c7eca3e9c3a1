"""Lines out of bytes: however they are chunked, however long they are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gaia.mcp.protocol.framing import LineFramer, OversizedLine
from tests.memory import measured_memory

LIMIT = 5000
"""More than the 1024 bytes at each end that are kept of a line over the limit."""


def frame(chunks: Iterable[bytes], limit: int = LIMIT) -> list[bytes | OversizedLine]:
    """All lines of a stream, the last one included if it has no newline."""
    framer = LineFramer(limit)
    lines = [line for chunk in chunks for line in framer.lines(chunk)]
    rest = framer.finish()
    return lines if rest is None else [*lines, rest]


def cut(stream: bytes, positions: Iterable[int]) -> list[bytes]:
    """The stream in pieces; a position that comes twice makes an empty piece."""
    edges = [0, *sorted(min(position, len(stream)) for position in positions), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def pieces_of(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def oversized(line: bytes | OversizedLine) -> OversizedLine:
    assert isinstance(line, OversizedLine)
    return line


def answer(size: int, **members: Any) -> bytes:
    """A line of more than `size` bytes with the members in this order; ``result=...`` stands for a long result."""
    long = {"content": [{"type": "text", "text": "x" * size}]}
    return json.dumps({name: long if value is ... else value for name, value in members.items()}).encode()


texts = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"").rstrip(b"\r"))
positions = st.lists(st.integers(0, 400), max_size=30)


class TestLines:
    @given(st.lists(texts, max_size=10), st.sampled_from([b"\n", b"\r\n"]), positions)
    def test_the_same_lines_come_out_however_the_stream_is_chunked(
        self, lines: list[bytes], line_end: bytes, positions: list[int]
    ) -> None:
        stream = b"".join(line + line_end for line in lines)
        assert frame(cut(stream, positions)) == lines

    @given(st.binary(max_size=200), positions, positions)
    def test_chunking_never_matters_whatever_the_bytes_and_whatever_the_limit(
        self, stream: bytes, positions: list[int], others: list[int]
    ) -> None:
        for limit in (1, 7, 100, 1000):
            assert frame(cut(stream, positions), limit) == frame(cut(stream, others), limit)

    def test_a_line_is_given_out_as_soon_as_its_newline_is_there(self) -> None:
        framer = LineFramer()
        assert list(framer.lines(b"one\ntw")) == [b"one"]
        assert list(framer.lines(b"")) == []
        assert list(framer.lines(b"o\n\nthree\n")) == [b"two", b"", b"three"]

    def test_a_carriage_return_belongs_to_the_line_end_even_if_the_newline_comes_later(self) -> None:
        framer = LineFramer()
        assert list(framer.lines(b"one\r")) == []
        assert list(framer.lines(b"\ntw\ro\r\n")) == [b"one", b"tw\ro"]

    def test_a_separator_of_unicode_is_not_the_end_of_a_line(self) -> None:
        line = '"\u2028 \u2029 \u0085 \x0b \x0c"'.encode()
        assert frame([line + b"\n"]) == [line]


class TestLimit:
    @pytest.mark.parametrize("chunk_size", [1, 3, 1024, 4096, LIMIT - 1, LIMIT, 10 * LIMIT])
    def test_a_longer_line_is_reported_with_its_size_and_its_neighbours_are_intact(self, chunk_size: int) -> None:
        stream = b"before\n" + b"x" * (LIMIT + 1) + b"\n" + b"y" * LIMIT + b"\nafter\n"
        before, long, longest, after = frame(pieces_of(stream, chunk_size))
        assert (before, longest, after) == (b"before", b"y" * LIMIT, b"after")
        assert oversized(long).size == LIMIT + 1

    @given(texts, st.integers(LIMIT + 1, 3 * LIMIT), texts, st.lists(st.integers(0, 3 * LIMIT), max_size=30))
    @example(b"", LIMIT + 1, b"12}", [LIMIT + 2])
    @example(b"", LIMIT + 1, b"12}", [LIMIT - 1, LIMIT, LIMIT + 1, LIMIT + 3])
    def test_of_a_longer_line_both_ends_are_kept(
        self, head: bytes, size: int, tail: bytes, positions: list[int]
    ) -> None:
        line = head + (b"0123456789" * size)[:size] + tail
        assert frame([*cut(line, positions), b"\n"]) == [OversizedLine(len(line), line[:1024], line[-1024:])]

    def test_the_end_of_the_stream_ends_a_longer_line_too(self) -> None:
        (line,) = frame([b"x" * LIMIT, b"yy"])
        assert oversized(line).size == LIMIT + 2

    def test_one_endless_line_takes_no_more_memory_than_the_limit(self) -> None:
        framer = LineFramer(max_line_bytes=1_000_000)
        with measured_memory() as memory:
            for _ in range(1000):
                list(framer.lines(b"%b" % (b"x" * 50_000)))
        assert memory.peak < 1_200_000
        assert oversized(next(framer.lines(b"\n"))).size == 50_000_000

    def test_a_line_that_trickles_in_takes_no_more_memory_than_its_size(self) -> None:
        framer = LineFramer()
        with measured_memory() as memory:
            for number in range(100_000):
                list(framer.lines(b"%02x" % (number % 256)))
        assert memory.held < 2 * 200_000

    def test_the_limit_may_be_smaller_than_what_is_kept(self) -> None:
        assert frame([b"abc", b"de\n"], limit=3) == [OversizedLine(5, b"abcde", b"abcde")]


class CountedBytes(bytes):
    """Counts how many bytes are copied out of it."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        taken = super().__getitem__(index)
        if isinstance(index, slice):
            CountedBytes.copied += len(taken)
        return taken


@pytest.mark.parametrize("lines", [1, 100, 5000])
def test_the_work_is_linear_in_the_bytes_however_many_lines_a_chunk_has(lines: int) -> None:
    chunk = CountedBytes(b"x" * (100_000 // lines) + b"\n") * lines
    CountedBytes.copied = 0
    assert len(frame([CountedBytes(chunk)], limit=1_000_000)) == lines
    assert CountedBytes.copied <= len(chunk)


class TestWhoseAnswerItWas:
    @pytest.mark.parametrize(
        "line",
        [
            answer(LIMIT, jsonrpc="2.0", id=7, result=...),
            answer(LIMIT, id=7, jsonrpc="2.0", result=...),
            answer(LIMIT, id=7, result=..., jsonrpc="2.0"),
            answer(LIMIT, jsonrpc="2.0", result=..., id=7),
            answer(LIMIT, result=..., id=7, jsonrpc="2.0"),
            answer(LIMIT, result=..., jsonrpc="2.0", id=7),
            answer(LIMIT, jsonrpc="2.0", id=7, error=...),
            answer(LIMIT, jsonrpc="2.0", id="7", result=...),
            answer(LIMIT, jsonrpc="2.0", result=..., id="7"),
            answer(LIMIT, jsonrpc="2.0", id=7, result=...).replace(b" ", b""),
            b'  { "jsonrpc" : "2.0" , "id" : 7 , "result" : { "method" : "x' + b"x" * LIMIT + b'" } }  ',
        ],
    )
    @pytest.mark.parametrize("chunk_size", [1, 1000, 10 * LIMIT])
    def test_the_id_is_found_at_either_end(self, line: bytes, chunk_size: int) -> None:
        (long,) = frame(pieces_of(line, chunk_size))
        assert oversized(long).answered_id() == 7

    @given(st.integers(10**5, 10**17), st.integers(1, 10), st.lists(st.integers(1, 10), max_size=5))
    @example(123456, 5, [5, 4, 3])
    def test_an_id_that_comes_in_pieces_is_not_mistaken_for_another(
        self, number: int, over: int, from_end: list[int]
    ) -> None:
        line = b'{"jsonrpc":"2.0","result":"%s","id":%d}' % (b"x" * LIMIT, number)
        pieces = cut(line, [len(line) - distance for distance in from_end])
        (long,) = frame([*pieces, b"\n"], limit=len(line) - over)
        assert oversized(long).answered_id() == number

    @pytest.mark.parametrize(
        "line",
        [
            # Somebody else's id: of a request or a notification of the server, or of something within the result.
            answer(LIMIT, jsonrpc="2.0", id=7, method="ping", params=...),
            answer(LIMIT, jsonrpc="2.0", method="ping", params=..., id=7),
            answer(LIMIT, jsonrpc="2.0", method="notifications/message", params=...),
            b'{"jsonrpc":"2.0","result":{"id":7,"text":"%s"}}' % (b"x" * LIMIT),
            b'{"jsonrpc":"2.0","result":{"text":"%s","id":7}}' % (b"x" * LIMIT),
            json.dumps({"jsonrpc": "2.0", "result": "x" * LIMIT + '","id":7}'}).encode(),
            # Nobody's.
            b"x" * (LIMIT + 1),
            b"[" + answer(LIMIT, jsonrpc="2.0", id=7, result=...) + b"]",
            answer(LIMIT, jsonrpc="2.0", id=None, result=...),
            answer(LIMIT, jsonrpc="2.0", id=-7, result=...),
            answer(LIMIT, jsonrpc="2.0", id=10**30, result=...),
            answer(LIMIT, jsonrpc="2.0", id="seven", result=...),
        ],
    )
    def test_no_other_number_is_taken_for_it(self, line: bytes) -> None:
        (long,) = frame([line])
        assert oversized(long).answered_id() is None
