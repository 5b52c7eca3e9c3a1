"""Responses from bytes: whole ones, in pieces, and what is none."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.http.errors import HttpClientError, ProtocolBroken, TooLong
from gaia.http.response_parser import MAX_HEAD_BYTES, MAX_HEADERS, ResponseParser

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


def parsed(*pieces: bytes, bodyless: bool = False) -> ResponseParser:
    parser = ResponseParser()
    parser.begin(bodyless=bodyless)
    for piece in pieces:
        parser.feed(piece)
    return parser


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` in pieces, none of which is empty."""
    places = sorted({0, len(data), *(place % len(data) for place in at)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


class TestWhole:
    def test_head_and_body(self) -> None:
        parser = parsed(OK)
        assert (parser.status, parser.headers) == (200, {b"content-length": b"5"})
        assert (parser.body, parser.complete, parser.keep_alive) == ([b"hello"], True, True)

    def test_one_after_another(self) -> None:
        parser = parsed(CHUNKED)
        assert b"".join(parser.body) == b"hello"
        parser.begin()
        assert not parser.complete
        parser.feed(OK)
        assert (parser.body, parser.complete, parser.keep_alive) == ([b"hello"], True, True)
        assert b"transfer-encoding" not in parser.headers

    @given(st.sampled_from([OK, CHUNKED]), st.booleans(), st.lists(st.integers(0, 1000)))
    def test_it_does_not_matter_how_they_are_cut(self, data: bytes, continued: bool, at: list[int]) -> None:
        parser = ResponseParser()
        for _ in range(2):
            parser.begin()
            for piece in cut((CONTINUED if continued else b"") + data, at):
                assert not parser.complete
                parser.feed(piece)
            assert (parser.status, b"".join(parser.body), parser.complete) == (200, b"hello", True)
            assert parser.keep_alive
            assert b"link" not in parser.headers

    def test_one_without_a_length_ends_with_the_connection(self) -> None:
        parser = parsed(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")
        assert not parser.complete
        parser.feed(b"")
        assert (b"".join(parser.body), parser.complete, parser.keep_alive) == (b"hello", True, False)

    @pytest.mark.parametrize("status", [204, 304])
    def test_some_have_no_body_whatever_they_say(self, status: int) -> None:
        parser = parsed(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status)
        assert (parser.complete, parser.keep_alive, parser.body) == (True, True, [])

    def test_that_to_head_has_none_either(self) -> None:
        parser = parsed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", bodyless=True)
        assert (parser.complete, parser.keep_alive) == (True, False)

    @pytest.mark.parametrize(
        ("head", "keep_alive"),
        [
            (b"HTTP/1.1 200 OK\r\n", True),
            (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
            (b"HTTP/1.0 200 OK\r\n", False),
            (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
        ],
    )
    def test_the_server_says_whether_the_connection_stays(self, head: bytes, keep_alive: bool) -> None:
        assert parsed(head + b"Content-Length: 0\r\n\r\n").keep_alive is keep_alive

    def test_several_values_are_joined(self) -> None:
        parser = parsed(
            b"HTTP/1.1 200 OK\r\nA: 1\r\nSet-Cookie: x\r\na: 2\r\nset-cookie: y\r\nContent-Length: 0\r\n\r\n"
        )
        assert parser.headers == {b"a": b"1, 2", b"set-cookie": b"x\ny", b"content-length": b"0"}

    def test_an_offer_to_switch_the_protocol_is_none_of_ours(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello"
        assert parsed(head).body == [b"hello"]


class TestSurplus:
    @pytest.mark.parametrize("surplus", [b"X", b"H", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", OK + OK])
    def test_what_follows_a_response_is_not_part_of_it_and_ends_the_connection(self, surplus: bytes) -> None:
        parser = parsed(OK + surplus)
        assert (parser.status, parser.body, parser.complete, parser.keep_alive) == (200, [b"hello"], True, False)
        assert parser.headers == {b"content-length": b"5"}

    def test_so_does_a_body_that_there_may_not_be(self) -> None:
        parser = parsed(b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\nhello")
        assert (parser.complete, parser.keep_alive, parser.body) == (True, False, [])


AMBIGUOUS = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    b"Content-Length: 5\r\nContent-Length: 5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: -5\r\n",
    b"Content-Length: 0x5\r\n",
    b"Content-Length:\r\n",
    b"Content-Length: 99999999999999999999999\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Content-Length: 5\n",
    b"X: a\rContent-Length: 5\r\n",
    b"X: a\0b\r\nContent-Length: 5\r\n",
    b"X: a\r\n Content-Length: 5\r\n",
    b": a\r\nContent-Length: 5\r\n",
]


class TestRefused:
    @pytest.mark.parametrize("headers", AMBIGUOUS)
    def test_a_response_whose_end_is_ambiguous(self, headers: bytes) -> None:
        with pytest.raises(ProtocolBroken):
            parsed(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n5\r\nhello\r\n0\r\n\r\n")

    @pytest.mark.parametrize(
        "data",
        [
            b"SSH-2.0-OpenSSH\r\n",
            b"<html>",
            b"\x16\x03\x01",
            b"ICY 200 OK\r\n\r\n",
            b"HTTP/1.1 99 OK\r\n\r\n",
            b"HTTP/1.1 000 OK\r\n\r\n",
            b"HTTP/1.1 1000 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\n\r\n",
            b"HTTP/1.1 199 Hm\r\nContent-Length: 5\r\n\r\nhello" + OK,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
        ],
    )
    def test_what_is_no_response(self, data: bytes) -> None:
        with pytest.raises(ProtocolBroken):
            parsed(data)

    @pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200", CONTINUED])
    def test_a_connection_that_ends_without_one(self, data: bytes) -> None:
        with pytest.raises(ProtocolBroken, match="without a response"):
            parsed(*([data] if data else []), b"")

    @pytest.mark.parametrize("data", [OK[:-1], CHUNKED[:-1], CHUNKED[: CHUNKED.index(b"lo\r\n")]])
    def test_a_connection_that_ends_within_one(self, data: bytes) -> None:
        with pytest.raises(ProtocolBroken, match="before the end"):
            parsed(data, b"")

    @given(
        st.binary(max_size=300), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", CHUNKED[:-30]]), st.lists(st.integers())
    )
    def test_no_bytes_do_more_than_that(self, junk: bytes, before: bytes, at: list[int]) -> None:
        parser = ResponseParser()
        parser.begin()
        try:
            for piece in cut(before + junk + b"\r\n", at):
                parser.feed(piece)
                if parser.complete:
                    return
            parser.feed(b"")
        except HttpClientError:
            return
        assert parser.complete


class TestWithoutEnd:
    """A server that goes on and on is refused before it takes much memory."""

    @pytest.mark.parametrize(
        ("begin", "again"),
        [
            (b"HTTP/1.1 200 ", b"O" * 1000),
            (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 1000),
            (b"HTTP/1.1 200 OK\r\n", b"a" * 1000),
            (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 100),
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a" * 1000),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 100),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", b"b" * 1000),
        ],
    )
    def test_outside_of_the_body(self, begin: bytes, again: bytes) -> None:
        parser = parsed(*([begin] if begin else []))
        fed = 0

        def go_on() -> None:
            nonlocal fed
            while fed < 10 * MAX_HEAD_BYTES:
                parser.feed(again)
                fed += len(again)

        with pytest.raises((TooLong, ProtocolBroken)):
            go_on()
        assert fed <= MAX_HEAD_BYTES

    def test_a_body_may_be_as_long_as_its_reader_allows(self) -> None:
        parser = parsed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(MAX_HEAD_BYTES // 4):
            parser.feed(b"1\r\na\r\n")
            parser.body.clear()
        assert not parser.complete

    def test_with_many_headers_at_once(self) -> None:
        lines = b"".join(b"H%d: x\r\n" % number for number in range(MAX_HEADERS + 1))
        with pytest.raises(ProtocolBroken, match="headers"):
            parsed(b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n")


class _FromASignal(BaseException):
    pass


def test_an_exception_of_a_signal_handler_is_not_swallowed() -> None:
    class Struck(ResponseParser):
        def on_header(self, name: bytes, value: bytes) -> None:
            raise _FromASignal

    parser = Struck()
    with pytest.raises(_FromASignal):
        parser.feed(OK)
