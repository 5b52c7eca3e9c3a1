"""Waits on a socket, and the deadline at which they end."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.http.errors import TimedOut
from gaia.http.streams import Stream
from gaia.http.waits import Deadline, run

Pair = tuple[Stream, socket.socket]


@pytest.fixture
def pair(no_leaks: None) -> Iterator[Pair]:
    """A stream, and the other end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield Stream(ours), theirs


@pytest.mark.parametrize(
    "deadline",
    [None, 1e9, lambda: None, lambda: time.monotonic() + 5],
    ids=["none", "far", "callable-none", "callable"],
)
def test_what_comes_before_the_deadline_is_given(pair: Pair, deadline: Deadline) -> None:
    stream, other = pair
    other.sendall(b"hello")
    assert run(stream.receive(deadline)) == b"hello"
    run(stream.send(b"hi", deadline))
    assert other.recv(10) == b"hi"
    other.sendall(b"you")
    assert stream.receive_here(deadline) == b"you"
    other.close()
    assert run(stream.receive(deadline)) == b""
    assert stream.receive_here(deadline) == b""


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.01, 0.2])
def test_a_wait_ends_when_it_has_passed(pair: Pair, seconds: float) -> None:
    stream, _ = pair
    deadline = time.monotonic() + seconds
    with pytest.raises(TimedOut):
        run(stream.receive(deadline))
    assert time.monotonic() >= deadline
    with pytest.raises(TimedOut):
        stream.receive_here(time.monotonic() + seconds)


def test_so_does_that_for_a_reader(pair: Pair) -> None:
    stream, _ = pair
    with pytest.raises(TimedOut):
        run(stream.send(bytes(50_000_000), time.monotonic() + 0.1))


def test_one_without_a_limit_follows_one_with_a_limit(pair: Pair) -> None:
    stream, other = pair
    other.sendall(b"1")
    assert run(stream.receive(time.monotonic() + 5)) == b"1"
    other.sendall(b"2")
    assert run(stream.receive(None)) == b"2"


def test_an_error_of_the_system_is_no_deadline_that_has_passed(pair: Pair) -> None:
    """TCP gives up a peer that answers nothing for long: `ETIMEDOUT`, which Python calls `TimeoutError` too."""
    stream, other = pair

    class Dead(socket.socket):
        def recv(self, *_: Any) -> bytes:
            raise TimeoutError(110, "Connection timed out")

        send = recv  # type: ignore[assignment]

    other.sendall(b"x")
    ours = stream._socket
    stream._socket = Dead(fileno=os.dup(ours.fileno()))
    with pytest.raises(TimeoutError, match="Connection timed out"):
        run(stream.receive(time.monotonic() + 5))
    with pytest.raises(TimeoutError, match="Connection timed out"):
        run(stream.send(b"x", time.monotonic() + 5))
    stream._socket.close()


def test_it_is_readable_when_there_is_data_or_the_end(pair: Pair) -> None:
    stream, other = pair
    assert not stream.is_readable()
    other.sendall(b"x")
    assert stream.is_readable()
    assert run(stream.receive(None)) == b"x"
    assert not stream.is_readable()
    other.close()
    assert stream.is_readable()
