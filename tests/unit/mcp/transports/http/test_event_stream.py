"""A stream of events: what is a message, and from where it goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.http.response import Response
from gaia.http.waits import run
from gaia.mcp.transports.http.event_stream import EventStream, InvalidEvents
from tests.unit.mcp.transports.http.conftest import a_response


def response(text: str, kind: str = "text/event-stream") -> Response:
    return a_response(headers={"Content-Type": kind}, body=text.encode())


EVENTS = response("")


def messages(stream: EventStream, response: Response) -> Iterator[bytes]:
    """The messages of a response that has come."""
    return in_pieces(stream, [run(response.read())], response)


def in_pieces(stream: EventStream, pieces: list[bytes], response: Response = EVENTS) -> Iterator[bytes]:
    stream.begin(response)
    for piece in pieces:
        for message in stream.messages(piece):
            if message is not None:
                yield message


@pytest.fixture
def stream() -> EventStream:
    return EventStream(max_message_bytes=1000)


class TestMessages:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                ": comment\n\nevent: endpoint\ndata: /x\n\nid: 1\ndata:\n\ndata: a\n\nevent: message\ndata: b\n\n",
                [b"a", b"b"],
            ),
            ('data: {"a":\ndata: "ü"}\n\n', ['{"a":\n"ü"}'.encode()]),
            ("data: a\n\ndata: half", [b"a"]),
            (":\n" * 5000 + "data: a\n\n", [b"a"]),
        ],
        ids=["with data alone", "of several lines", "that ended", "after many comments"],
    )
    def test_only_message_events_are_messages(self, stream: EventStream, text: str, expected: list[bytes]) -> None:
        assert list(messages(stream, response(text))) == expected

    def test_one_that_is_too_long_is_an_error_after_those_before_it(self, stream: EventStream) -> None:
        said = messages(stream, response(f"data: a\n\ndata: {'x' * 1001}\n\n"))
        assert next(said) == b"a"
        with pytest.raises(InvalidEvents):
            next(said)

    def test_a_response_of_another_type_or_what_never_ends_a_line_or_an_event_is_an_error(
        self, stream: EventStream
    ) -> None:
        endless = ("x" * 1001, ":" + "x" * 1001, "event: a\n" * 200, "id: 1\n" * 201, "data:\n" * 201)
        for answered in (response("data: a\n\n", "text/html"), *map(response, endless)):
            with pytest.raises(InvalidEvents):
                list(messages(stream, answered))

    def test_others_have_their_turn_between_many_lines(self, stream: EventStream) -> None:
        stream.begin(EVENTS)
        assert list(stream.messages(b":\n" * 200)) == [None] * 3


class TestPieces:
    LINES = (
        *("\ufefffirst: x", "data: a", "data:  b", ""),
        *(": c", "id: 7", "event: message", "data: ü\u2028", ""),
        *("data: d", ""),
    )
    MESSAGES = (b"a\n b", "ü\u2028".encode(), b"d")

    @given(st.sampled_from(["\n", "\r", "\r\n"]), st.sets(st.integers(1, 80)))
    def test_lines_end_in_three_ways_and_chunks_anywhere(self, end: str, cuts: set[int]) -> None:
        said = "".join(line + end for line in self.LINES).encode()
        places = [0, *sorted(cuts), len(said)]
        pieces = [said[begin:end] for begin, end in itertools.pairwise(places)]
        stream = EventStream(max_message_bytes=1000)
        assert tuple(in_pieces(stream, pieces)) == self.MESSAGES
        assert stream.last_id == "7"

    def test_many_small_pieces_take_linear_time(self) -> None:
        pieces = [b"x"] * 20_000
        stream = EventStream(max_message_bytes=30_000)
        (message,) = in_pieces(stream, [b"data: ", *pieces, b"\n\n"])
        assert len(message) == 20_000

    def test_what_is_no_utf_8_is_replaced(self, stream: EventStream) -> None:
        assert list(in_pieces(stream, [b"data: \xff\n\n"])) == ["\ufffd".encode()]


class TestPlace:
    def test_it_is_the_last_id_over_all_responses(self, stream: EventStream) -> None:
        assert stream.last_id is None
        list(messages(stream, response("id: 1\ndata: a\n\nid: 2\ndata: b\n\n")))
        assert stream.last_id == "2"
        list(messages(stream, response("data: c\n\n")))
        assert stream.last_id == "2"

    def test_it_is_known_while_an_event_is_handed_over(self, stream: EventStream) -> None:
        places = [stream.last_id for _ in messages(stream, response("id: 1\ndata: a\n\nid: 2\ndata: b\n\n"))]
        assert places == ["1", "2"]

    @pytest.mark.parametrize(
        ("said", "seconds"),
        [
            ("", 1.0),
            ("retry: 500\n", 0.5),
            ("retry: 10\n", 0.1),
            ("retry: 0\n", 0.1),
            ("retry: -5\n", 0.1),
            ("retry: 900000000\n", 300.0),
            pytest.param(f"retry: {'9' * 400}\n", 300.0, id="more than a float holds"),
            pytest.param(f"retry: {'9' * 5000}\n", 1.0, id="more than Python reads"),
            ("retry: soon\n", 1.0),
        ],
    )
    def test_the_server_says_how_long_to_wait_within_limits(self, said: str, seconds: float) -> None:
        stream = EventStream(max_message_bytes=10_000)
        list(messages(stream, response(f"{said}data: a\n\n")))
        assert stream.retry == seconds

    @pytest.mark.parametrize("identifier", ["x" * 5000, "ü", "\x1b[2J", "\x7f"])
    def test_an_id_that_no_header_can_carry_is_not_kept(self, identifier: str) -> None:
        stream = EventStream(max_message_bytes=10_000)
        list(messages(stream, response(f"id: 1\ndata: a\n\nid: {identifier}\ndata: b\n\n")))
        assert stream.last_id == "1"


class TestPause:
    def test_it_grows_while_nothing_comes(self, stream: EventStream) -> None:
        list(messages(stream, response("retry: 0\ndata:\n\n")))
        assert [stream.pause(1.0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        list(messages(stream, response("data: a\n\n")))
        assert [stream.pause(1.0) for _ in range(2)] == [0.1, 0.2]

    def test_it_is_never_shorter_than_the_server_wants(self, stream: EventStream) -> None:
        list(messages(stream, response("retry: 90000\ndata:\n\n")))
        assert [stream.pause(1.0) for _ in range(100)] == [90.0] * 100
