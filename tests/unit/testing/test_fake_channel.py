"""One start of a fake server, as the engine sees it."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED
from gaia.mcp.protocol.framing import OversizedLine
from gaia.mcp.rpc.channel import CallerWork, Ending, Frame
from gaia.runtime.clock import SystemClock
from gaia.testing.fake_channel import FakeChannel
from gaia.testing.fake_state import FakeServerState
from gaia.testing.in_memory import InMemoryTransport

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


class Listener:
    """What comes from the server."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.endings = 0

    def message_received(self, line: bytes | OversizedLine) -> None:
        assert isinstance(line, bytes)
        self.messages.append(json.loads(line))

    def request_failed(self, call_id: int, error: MCPError) -> None:
        raise AssertionError(f"{call_id} failed: {error}")

    def channel_ended(self) -> None:
        self.endings += 1


class Asked:
    """A message whose sender notes whether it was asked if it may be written."""

    id = 1
    method = "ping"
    params = None
    ended = False
    deadline = math.inf
    frame = PING

    def __init__(self, *, wanted: bool = True) -> None:
        self.writes = 0
        self._wanted = wanted

    def run_in_caller(self, work: CallerWork) -> bool:
        raise AssertionError(work)

    def begin_write(self) -> bool:
        self.writes += 1
        return self._wanted

    def undo_write(self) -> None:
        raise AssertionError


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def channel(listener: Listener) -> Iterator[FakeChannel]:
    channel = FakeChannel(state(), listener, "time", 1)
    yield channel
    channel.close(0)


def state() -> FakeServerState:
    return FakeServerState(
        "time", revision="2025-11-25", instructions=None, clock=SystemClock(), notify=lambda _method, _params: None
    )


def test_a_message_is_answered(channel: FakeChannel, listener: Listener) -> None:
    assert channel.send(Frame(PING))
    assert listener.messages == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


def test_a_call_that_was_given_up_is_not_written(channel: FakeChannel, listener: Listener) -> None:
    assert channel.send(Asked(wanted=False))
    assert listener.messages == []


def test_what_is_sent_to_a_server_that_has_ended_is_not_written(channel: FakeChannel, listener: Listener) -> None:
    channel.end(Ending(1))
    item = Asked()
    assert channel.send(item)
    assert (item.writes, listener.messages) == (0, [])


def test_it_ends_once(channel: FakeChannel, listener: Listener) -> None:
    assert channel.ending(0) is None
    assert channel.is_alive()
    assert not channel.stop_writing()
    channel.end(Ending(3))
    channel.end(Ending(4))
    assert listener.endings == 1
    assert channel.ending(0) == Ending(3)
    assert channel.stop_writing()
    assert not channel.is_alive()
    assert channel.close(2) == Ending(3)


def test_a_server_that_is_stopped_exits_by_itself(channel: FakeChannel, listener: Listener) -> None:
    assert channel.close(2) == Ending(0)
    channel.write(b"{}")
    channel.end(Ending(1))
    assert (listener.messages, listener.endings) == ([], 0)


def test_a_server_that_hangs_reads_later(channel: FakeChannel, listener: Listener) -> None:
    channel.hang()
    channel.hang()
    item = Asked()
    assert channel.send(item)
    channel.write(b"{}")
    assert (item.writes, listener.messages) == (1, [])
    channel.resume()
    assert [message["id"] for message in listener.messages] == [1]


def test_in_a_forked_child_nothing_is_written(channel: FakeChannel, listener: Listener) -> None:
    channel.after_fork()
    channel.send(Frame(PING))
    assert listener.messages == []
    assert not channel.is_alive()


def test_it_has_no_process_and_no_secrets(channel: FakeChannel) -> None:
    channel.set_protocol_version(NOT_NEGOTIATED)
    assert (channel.pid, channel.memory(), channel.redact("text")) == (None, None, "text")


class TestTransport:
    @pytest.fixture
    def transport(self, listener: Listener) -> InMemoryTransport:
        return InMemoryTransport("time", 5, lambda listener, name: FakeChannel(state(), listener, name, 1))

    def test_calls_go_to_the_first_channel_until_another_one_is_presented(
        self, transport: InMemoryTransport, listener: Listener
    ) -> None:
        assert transport.channel is None
        first, second = transport.open(listener, "time"), transport.open(listener, "time")
        assert transport.channel is first
        transport.present(second)
        assert transport.channel is second
        second.end(Ending(1))
        assert transport.channel is None
        for channel in (first, second):
            channel.close(0)
