"""What a recorder between a server and its connection sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gaia.mcp.errors import MCPError, StartFailed
from gaia.mcp.rpc.channel import Channel, ChannelListener
from gaia.mcp.rpc.connection import Connection, Recorders
from gaia.testing import FakeClock
from tests.supervised import Supervised, restart


class SilentRecorder:
    """Passes everything on, and notes the steps."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def listener(self, connection: Connection) -> ChannelListener:
        self.seen.append("listener")
        return connection

    def channel(self, channel: Channel) -> Channel:
        self.seen.append("channel")
        return channel

    def failed(self, error: MCPError) -> None:
        self.seen.append(f"failed: {error}")


@pytest.fixture
def server(fake_clock: FakeClock) -> Iterator[Supervised]:
    server = Supervised(fake_clock)
    yield server
    server.close()


def test_each_start_has_a_tap_of_its_own(server: Supervised) -> None:
    names: list[str] = []
    seen: list[str] = []

    def new(name: str) -> SilentRecorder:
        names.append(name)
        return SilentRecorder(seen)

    server.context.recorders.new = new
    server.started()
    assert seen == ["listener", "channel"]
    restart(server)
    assert names == ["fake", "fake"]
    assert server.call_answered_with({"content": []})


def test_it_is_told_of_a_start_that_fails(server: Supervised) -> None:
    seen: list[str] = []
    server.context.recorders.new = lambda _: SilentRecorder(seen)
    server.transport.start_errors.append(StartFailed("no such program"))
    assert not server.supervisor.start()
    assert seen == ["listener", "failed: no such program"]


def test_without_one_nothing_stands_between(server: Supervised) -> None:
    assert Recorders().new is None
    server.started()
    assert server.supervisor.call_queue.ready is not None
    assert server.supervisor.call_queue.ready.channel is server.transport.channel(1)
