"""Responses over HTTP."""

from collections.abc import Sequence

import pytest

from gaia.mcp.gateway.access.settings import GatewayLimits
from gaia.mcp.gateway.front.http_reply import MAX_UNSENT, HttpReply, HttpStream, KeepAlive
from gaia.mcp.protocol.remote_deadlines import GatewayClock


class Response:
    """What a client gets."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.is_stream = self.is_over = False
        self.unsent = 0

    def finish(self, status: int, _headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.status, self.body, self.is_over = status, body, True

    def open_stream(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        assert (b"x-accel-buffering", b"no") in headers
        self.is_stream = True

    def send(self, event: bytes) -> None:
        self.body += event

    def end(self) -> None:
        self.is_over = True


def reply_to(response: Response, keep_alive: KeepAlive, *, accepts_messages: bool = True) -> HttpReply:
    return HttpReply(response, keep_alive, GatewayClock(), [], accepts_messages=accepts_messages)


def test_an_answer_alone_is_json_and_a_request_that_was_cancelled_has_none() -> None:
    response, keep_alive = Response(), KeepAlive()
    reply_to(response, keep_alive).answer(b"{}", 404)
    assert (response.status, response.body, response.is_stream) == (404, b"{}", False)
    reply_to(response, keep_alive).abandon()
    assert (response.status, response.body) == (202, b"")
    reply_to(Response(), keep_alive).forget()
    assert not keep_alive.replies


@pytest.mark.parametrize(
    ("accepts_messages", "unsent", "body"),
    [
        (True, 0, b'event: message\ndata: {"a":1}\n\nevent: message\ndata: 2\n\nevent: message\ndata: {"b":2}\n\n'),
        (False, 0, b'{"b":2}'),
        (True, 1 << 30, b'event: message\ndata: {"a":1}\n\nevent: message\ndata: {"b":2}\n\n'),
    ],
    ids=["makes it a stream", "is left out for a client that takes no streams", "and for one that does not read"],
)
def test_what_comes_before_the_answer(accepts_messages: bool, unsent: int, body: bytes) -> None:
    response = Response()
    reply = reply_to(response, KeepAlive(), accepts_messages=accepts_messages)
    reply.send(b'{"a":1}')
    response.unsent = unsent
    reply.send(b"2")
    reply.answer(b'{"b":2}', 200)
    assert response.body == body
    assert response.is_over


def test_what_is_silent_for_two_sweeps_says_something() -> None:
    response, keep_alive = Response(), KeepAlive()
    reply_to(response, keep_alive)
    stream = Response()
    HttpStream(stream, keep_alive)
    keep_alive.sweep()
    assert (response.body, stream.body) == (b"", b": keep-alive\n\n")
    keep_alive.sweep()
    assert response.body == b": keep-alive\n\n"


def test_a_stream_whose_client_does_not_read_ends() -> None:
    response, keep_alive = Response(), KeepAlive()
    stream = HttpStream(response, keep_alive)
    response.unsent = 1 << 30
    ends: list[str] = []
    stream.on_over = lambda: ends.append("told")
    stream.send(b"1")
    stream.end()
    assert response.is_over
    assert not keep_alive.streams
    assert ends == ["told"], "its session has one stream less"


def test_what_waits_for_all_streams_of_one_client_is_within_its_share() -> None:
    limits = GatewayLimits()
    assert limits.streams_per_client * MAX_UNSENT <= limits.unread_bytes_per_client
