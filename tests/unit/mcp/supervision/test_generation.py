"""Ending a lost server beside the supervisor."""

import queue
import threading
from collections.abc import Callable

import pytest

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.generation import Generation, Handlers
from gaia.mcp.supervision.policy import Loss
from gaia.runtime.event_loop import EventLoop
from tests.supervised import Supervised
from tests.waiting import PATIENCE


class Ended(Generation):
    """A started server that is ended."""

    def __init__(self, server: Supervised) -> None:
        handlers = Handlers(*(lambda *_: None,) * 5)
        super().__init__(server.context, EventLoop(server.clock), 1, server.supervisor.call_queue, handlers)
        self.channel = server.transport.channel(1)


@pytest.fixture
def ended(supervise: Callable[..., Supervised]) -> Ended:
    return Ended(supervise())


LOSS = Loss(None, Ending(), was_ready=True)


@pytest.fixture
def closed() -> "queue.SimpleQueue[Ending]":
    return queue.SimpleQueue()


def test_it_closes_beside_its_maker_and_tells_how_the_server_ended(
    ended: Ended, closed: "queue.SimpleQueue[Ending]"
) -> None:
    ended.channel.hold_closing()
    ended.channel.end(signal="SIGKILL")
    ended.terminate(LOSS, closed.put)
    ended.channel.wait_until_closing()
    assert ended.channel.closed_with_grace == 2.0
    assert closed.empty()
    assert not ended.is_terminated
    ended.channel.let_close()
    ended.stop()
    assert closed.get(timeout=PATIENCE) == Ending(signal="SIGKILL")
    assert closed.empty()


def test_without_a_thread_to_spare_it_closes_all_the_same(
    ended: Ended, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended.channel.end(exit_code=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ended.terminate(LOSS, closed.put)
    ended.stop()
    assert closed.get(timeout=PATIENCE) == Ending(exit_code=1)


def test_a_channel_that_cannot_be_closed_is_not_waited_for_for_ever(
    ended: Ended, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: float) -> Ending:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(ended.channel, "close", fail)
    ended.terminate(LOSS, closed.put)
    ended.stop()
    assert closed.get(timeout=PATIENCE) == Ending()
