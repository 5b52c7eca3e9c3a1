"""The channel to a placed server: its start on a thread of its own, and what may run before the next start."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.errors import StartFailed
from gaia.mcp.placement.engine import Address, Launch
from gaia.mcp.placement.transport import PlacedTransport
from gaia.runtime.locks import Latch
from tests.waiting import PATIENCE, wait_until

LAUNCH = Launch(name="it", entry={"command": "server"}, token="token-of-the-host", lease=30.0)


class Placed:
    """A host that the test starts and ends."""

    def __init__(self, *, stops: bool) -> None:
        self.stops = stops
        self.grace: list[float] = []
        self.why: str | None = None
        self.settled = Latch()

    def wait(self, timeout: float) -> Address:
        self.settled.wait(timeout)
        raise StartFailed("on node-1: there is no command token-of-the-host")

    def why_ended(self) -> str | None:
        return self.why

    def stop(self, grace: float) -> bool:
        self.grace.append(grace)
        self.settled.open()
        return self.stops

    def after_fork(self) -> None:
        pass


class Engine:
    def __init__(self) -> None:
        self.stops = True
        self.placed: list[Placed] = []
        self.is_closed = False

    def start(self, _launch: Launch, _on_ended: Callable[[str], None]) -> Placed:
        self.placed.append(Placed(stops=self.stops))
        return self.placed[-1]

    def close(self) -> None:
        self.is_closed = True


class Listener:
    def __init__(self) -> None:
        self.ended = threading.Event()

    def channel_ended(self) -> None:
        self.ended.set()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def transport(engine: Engine) -> Iterator[PlacedTransport]:
    transport = PlacedTransport(lambda: engine, lambda: LAUNCH, 5.0, PATIENCE)  # type: ignore[arg-type, return-value]
    transport.prepare("supervisor")
    yield transport
    transport.release("supervisor")


def opened(transport: PlacedTransport) -> tuple[Any, Listener]:
    listener = Listener()
    return transport.open(listener, "it"), listener  # type: ignore[arg-type]


def test_opening_does_not_wait_for_the_host(transport: PlacedTransport, engine: Engine) -> None:
    channel, _ = opened(transport)
    assert transport.opens_later(channel, lambda: None)
    assert wait_until(lambda: engine.placed != [])
    channel.close(2.0)
    assert engine.placed[0].grace != []
    assert transport.placement(channel) is None


def test_a_start_that_fails_ends_the_channel_with_the_reason(transport: PlacedTransport, engine: Engine) -> None:
    channel, listener = opened(transport)
    assert wait_until(lambda: engine.placed != [])
    engine.placed[0].settled.open()
    assert listener.ended.wait(PATIENCE)
    assert str(channel.ending(0.0)) == "cannot be started: on node-1: there is no command ***"
    channel.close(0.0)


def test_the_next_host_is_started_when_the_former_has_certainly_ended(
    transport: PlacedTransport, engine: Engine
) -> None:
    engine.stops = False
    first, _ = opened(transport)
    assert wait_until(lambda: engine.placed != [])
    first.close(0.0)
    second, _ = opened(transport)
    stopped = len(engine.placed[0].grace)
    assert wait_until(lambda: len(engine.placed[0].grace) > stopped + 1), "it is tried again and again"
    assert len(engine.placed) == 1
    engine.placed[0].why = "ended with its node"
    assert wait_until(lambda: len(engine.placed) == 2)
    second.close(0.0)


def test_the_next_host_is_started_when_the_lease_of_the_former_has_ended(
    transport: PlacedTransport, engine: Engine
) -> None:
    lost = Placed(stops=False)
    transport.left_uncertain(lost, time.monotonic() - 1)
    channel, _ = opened(transport)
    assert wait_until(lambda: engine.placed != [])
    assert lost.grace == []
    channel.close(0.0)


def test_a_channel_that_waits_for_the_end_of_a_host_can_be_closed(transport: PlacedTransport, engine: Engine) -> None:
    transport.left_uncertain(Placed(stops=False), time.monotonic() + 10 * PATIENCE)
    channel, _ = opened(transport)
    channel.close(0.0)
    assert engine.placed == []


def test_the_engine_is_left_when_neither_a_supervisor_nor_a_channel_uses_it(
    transport: PlacedTransport, engine: Engine
) -> None:
    channel, _ = opened(transport)
    assert wait_until(lambda: engine.placed != [])
    transport.release("supervisor")
    assert not engine.is_closed
    channel.close(0.0)
    assert engine.is_closed


def test_it_is_for_clients_only(transport: PlacedTransport) -> None:
    with pytest.raises(RuntimeError, match="MCPClient"):
        transport.connect()
    with pytest.raises(RuntimeError, match="MCPClient"):
        transport.send_request("ping")
    assert not transport.is_connected()
