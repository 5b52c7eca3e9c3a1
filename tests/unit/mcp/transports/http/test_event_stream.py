"""A stream of events: what is a message, and from where it goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.http import Response
from gaia.mcp.transports.http.event_stream import EventStream, InvalidEvents
from tests.unit.mcp.transports.http.conftest import a_response

KIND = {"content-type": "text/event-stream"}


def response(text: str, kind: str = "text/event-stream") -> Response:
    return a_response(headers={"Content-Type": kind}, body=text.encode())


class InPieces:
    """A response that comes in these chunks."""

    headers = KIND

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks


@pytest.fixture
def stream() -> EventStream:
    return EventStream(max_message_bytes=1000)


class TestMessages:
    def test_only_message_events_with_data_are_messages(self, stream: EventStream) -> None:
        text = ": comment\n\nevent: endpoint\ndata: /x\n\nid: 1\ndata:\n\ndata: a\n\nevent: message\ndata: b\n\n"
        assert list(stream.messages(response(text))) == [b"a", b"b"]

    def test_lines_of_one_event_belong_together(self, stream: EventStream) -> None:
        assert list(stream.messages(response('data: {"a":\ndata: "ü"}\n\n'))) == ['{"a":\n"ü"}'.encode()]

    def test_an_event_that_never_ended_is_none(self, stream: EventStream) -> None:
        assert list(stream.messages(response("data: a\n\ndata: half"))) == [b"a"]

    def test_one_that_is_too_long_is_an_error_after_those_before_it(self, stream: EventStream) -> None:
        messages = stream.messages(response(f"data: a\n\ndata: {'x' * 1001}\n\n"))
        assert next(messages) == b"a"
        with pytest.raises(InvalidEvents):
            next(messages)

    def test_a_response_of_another_type_is_an_error(self, stream: EventStream) -> None:
        with pytest.raises(InvalidEvents):
            list(stream.messages(response("data: a\n\n", "text/html")))

    def test_what_never_ends_a_line_or_an_event_is_an_error(self, stream: EventStream) -> None:
        for text in ("x" * 1001, ":" + "x" * 1001, "event: a\n" * 200, "id: 1\n" * 201, "data:\n" * 201):
            with pytest.raises(InvalidEvents):
                list(stream.messages(response(text)))

    def test_comments_may_go_on_for_ever(self, stream: EventStream) -> None:
        assert list(stream.messages(response(":\n" * 5000 + "data: a\n\n"))) == [b"a"]


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
        assert tuple(stream.messages(cast(Response, InPieces(pieces)))) == self.MESSAGES
        assert stream.last_id == "7"

    def test_many_small_pieces_take_linear_time(self) -> None:
        pieces = [b"x"] * 20_000
        stream = EventStream(max_message_bytes=30_000)
        (message,) = stream.messages(cast(Response, InPieces([b"data: ", *pieces, b"\n\n"])))
        assert len(message) == 20_000

    def test_what_is_no_utf_8_is_replaced(self, stream: EventStream) -> None:
        assert list(stream.messages(cast(Response, InPieces([b"data: \xff\n\n"])))) == ["\ufffd".encode()]


class TestPlace:
    def test_it_is_the_last_id_over_all_responses(self, stream: EventStream) -> None:
        assert stream.last_id is None
        list(stream.messages(response("id: 1\ndata: a\n\nid: 2\ndata: b\n\n")))
        assert stream.last_id == "2"
        list(stream.messages(response("data: c\n\n")))
        assert stream.last_id == "2"

    def test_it_is_known_while_an_event_is_handed_over(self, stream: EventStream) -> None:
        places = [stream.last_id for _ in stream.messages(response("id: 1\ndata: a\n\nid: 2\ndata: b\n\n"))]
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
        list(stream.messages(response(f"{said}data: a\n\n")))
        assert stream.retry == seconds

    @pytest.mark.parametrize("identifier", ["x" * 5000, "ü", "\x1b[2J", "\x7f"])
    def test_an_id_that_no_header_can_carry_is_not_kept(self, identifier: str) -> None:
        stream = EventStream(max_message_bytes=10_000)
        list(stream.messages(response(f"id: 1\ndata: a\n\nid: {identifier}\ndata: b\n\n")))
        assert stream.last_id == "1"


class TestPause:
    def test_it_grows_while_nothing_comes(self, stream: EventStream) -> None:
        list(stream.messages(response("retry: 0\ndata:\n\n")))
        assert [stream.pause(1.0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        list(stream.messages(response("data: a\n\n")))
        assert [stream.pause(1.0) for _ in range(2)] == [0.1, 0.2]

    def test_it_is_never_shorter_than_the_server_wants(self, stream: EventStream) -> None:
        list(stream.messages(response("retry: 90000\ndata:\n\n")))
        assert [stream.pause(1.0) for _ in range(100)] == [90.0] * 100
