"""Ending a lost server beside the supervisor."""

import queue
import threading
from typing import Any

import pytest

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.generation import Termination
from tests.fake_transport import FakeChannel
from tests.waiting import PATIENCE


@pytest.fixture
def channel() -> FakeChannel:
    class Nobody:
        def message_received(self, line: Any) -> None: ...

        def channel_ended(self) -> None: ...

    return FakeChannel(Nobody(), 1, {})


@pytest.fixture
def closed() -> "queue.SimpleQueue[Ending]":
    return queue.SimpleQueue()


def test_it_closes_beside_its_maker_and_tells_how_the_server_ended(
    channel: FakeChannel, closed: "queue.SimpleQueue[Ending]"
) -> None:
    channel.hold_closing()
    channel.end(signal="SIGKILL")
    termination = Termination("fake", channel, 1.5, closed.put)
    channel.wait_until_closing()
    assert channel.closed_with_grace == 1.5
    assert closed.empty()
    channel.let_close()
    termination.wait()
    assert closed.get(timeout=PATIENCE) == Ending(signal="SIGKILL")
    assert closed.empty()


def test_without_a_thread_to_spare_it_closes_all_the_same(
    channel: FakeChannel, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    channel.end(exit_code=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    Termination("fake", channel, 1.5, closed.put).wait()
    assert closed.get(timeout=PATIENCE) == Ending(exit_code=1)


def test_a_channel_that_cannot_be_closed_is_not_waited_for_for_ever(
    channel: FakeChannel, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: float) -> Ending:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(channel, "close", fail)
    Termination("fake", channel, 1.5, closed.put).wait()
    assert closed.get(timeout=PATIENCE) == Ending()
