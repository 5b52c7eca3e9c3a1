"""Ending a lost server beside the supervisor, and saying how it was lost."""

import queue
import threading
from typing import Any

import pytest

from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.supervision.termination import Loss, Termination
from gaia.mcp.errors import CallTimeout
from tests.fake_transport import PATIENCE, FakeChannel

CRASH = Loss(error=None, ending=Ending(exit_code=1), was_ready=True, wanted=False)


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
    termination = Termination("fake", channel, CRASH, 1.5, closed.put)
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
    Termination("fake", channel, CRASH, 1.5, closed.put).wait()
    assert closed.get(timeout=PATIENCE) == Ending(exit_code=1)


def test_a_channel_that_cannot_be_closed_is_not_waited_for_for_ever(
    channel: FakeChannel, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: float) -> Ending:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(channel, "close", fail)
    Termination("fake", channel, CRASH, 1.5, closed.put).wait()
    assert closed.get(timeout=PATIENCE) == Ending()


@pytest.mark.parametrize(
    ("loss", "stderr_tail", "reason"),
    [
        (CRASH, "", "the server exited with code 1"),
        (CRASH, "oh no", "the server exited with code 1; it last wrote on stderr:\noh no"),
        (Loss(None, Ending(signal="SIGSEGV", stderr_tail="early"), True, True), "", "early"),
        (Loss(None, Ending(), False, True), "", "the server closed its output"),
        (Loss(CallTimeout("it hangs"), Ending(), True, True), "hours of logs", "it hangs"),
        (Loss(CallTimeout("no answer"), Ending(), False, True), "no licence", "no answer; the server last wrote"),
    ],
)
def test_the_reason_says_what_helps(loss: Loss, stderr_tail: str, reason: str) -> None:
    assert reason in loss.reason(stderr_tail)
    assert ("hours of logs" in loss.reason(stderr_tail)) is False
