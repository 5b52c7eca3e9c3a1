"""When a server that works is due to be replaced. Time and chance are numbers."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.connection import ConnectionState
from gaia.mcp.client.rpc.counted_connection import CountedConnection
from gaia.mcp.client.supervision.event_loop import EventLoop
from gaia.mcp.client.supervision.recycling import Recycling
from gaia.mcp.client.supervision.recycling_limits import RecyclingLimits
from tests.fake_clock import FakeClock

MEGABYTE = 1024**2


class Watched:
    """A process that is watched, and what is said of it."""

    def __init__(self, clock: FakeClock, chance: float = 0.0, **limits: Any) -> None:
        self.clock = clock
        self.loop = EventLoop(clock)
        self.due: list[str] = []
        self.memory: Any = Mock(return_value=10 * MEGABYTE)
        rng = random.Random()
        rng.random = lambda: chance  # type: ignore[method-assign]
        self.recycling = Recycling(RecyclingLimits(**limits), clock, rng, self.loop, 30.0, self.due.append)
        self.begin()

    def begin(self) -> None:
        connection = CountedConnection(
            "test", 1, self.clock, max_pending=9, on_notification=lambda _: None, on_ended=lambda _: None
        )
        connection.channel = Mock()
        connection.move_to(ConnectionState.READY)
        self.connection = connection
        self.recycling.begin(SimpleNamespace(connection=connection, memory=self.memory))  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the timers that are due then run, each at its moment."""
        end = self.clock.monotonic() + seconds
        while (deadline := self.loop.timers.next_deadline()) is not None and deadline <= end:
            self.clock.advance(deadline - self.clock.monotonic())
            for task in self.loop.timers.due(self.clock.monotonic())[0]:
                task()
        self.clock.advance(end - self.clock.monotonic())

    def call(self) -> None:
        call = Call(1, "tools/call", {}, self.clock.monotonic(), 30.0)
        assert self.connection.submit(call)
        call.finish({})
        for task in self.loop.drain():
            task()


class TestLifetime:
    def test_it_is_due_at_the_end_of_its_lifetime_once(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_lifetime=3600.0)
        watched.pass_time(3599.0)
        assert watched.due == []
        watched.pass_time(1.0)
        assert watched.due == ["max_lifetime"]
        watched.pass_time(10_000.0)
        assert watched.due == ["max_lifetime"]

    def test_a_fresh_process_has_a_lifetime_of_its_own(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_lifetime=100.0)
        watched.pass_time(100.0)
        watched.begin()
        watched.pass_time(99.0)
        assert watched.due == ["max_lifetime"]
        watched.pass_time(1.0)
        assert watched.due == ["max_lifetime"] * 2

    def test_chance_makes_it_shorter_and_never_longer(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, chance=0.999999, max_lifetime=100.0)
        watched.pass_time(90.0)
        assert watched.due == []
        watched.pass_time(0.1)
        assert watched.due == ["max_lifetime"]

    def test_servers_that_were_started_together_are_not_due_together(self, fake_clock: FakeClock) -> None:
        began, chance = fake_clock.monotonic(), random.Random(7)
        ends = set()
        for _ in range(200):
            loop = EventLoop(fake_clock)
            limits = RecyclingLimits(max_lifetime=3600.0)
            recycling = Recycling(limits, fake_clock, chance, loop, 30.0, Mock())
            recycling.begin(Mock())
            ends.add(round((loop.timers.next_deadline() or 0.0) - began))
        assert len(ends) > 100
        assert min(ends) >= 3240
        assert max(ends) <= 3600


class TestCalls:
    def test_it_is_due_at_the_call_with_the_number_of_the_limit(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_calls=3)
        for due in ([], [], ["max_calls"], ["max_calls"]):
            watched.call()
            assert watched.due == due

    def test_calls_of_a_process_that_was_lost_mean_nothing(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_calls=1)
        watched.recycling.end()
        watched.call()
        assert watched.due == []


class TestMemory:
    def test_it_is_due_when_it_has_grown_beyond_the_limit(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_memory=100 * MEGABYTE)
        watched.memory.return_value = 100 * MEGABYTE
        watched.pass_time(60.0)
        assert watched.due == []
        watched.memory.return_value += 1
        watched.pass_time(5.0)
        assert watched.due == ["max_memory"]

    def test_it_is_measured_every_few_seconds_and_first_when_it_has_settled(self, fake_clock: FakeClock) -> None:
        watched = Watched(fake_clock, max_memory=100 * MEGABYTE)
        watched.memory.return_value = 200 * MEGABYTE
        watched.pass_time(29.9)
        assert watched.memory.call_count == 0
        watched.memory.return_value = MEGABYTE
        watched.pass_time(20.2)
        assert watched.memory.call_count == 5

    @pytest.mark.parametrize("answer", [None, OSError("no /proc")])
    def test_what_cannot_be_measured_goes_on(
        self, fake_clock: FakeClock, answer: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        watched = Watched(fake_clock, max_memory=100 * MEGABYTE, max_lifetime=100.0)
        watched.memory.side_effect = [answer] * 50
        watched.pass_time(100.0)
        assert watched.due == ["max_lifetime"]
        assert ("memory_unknown" in caplog.text) == (answer is not None)


def test_without_limits_no_timer_is_set(fake_clock: FakeClock) -> None:
    assert Watched(fake_clock).loop.timers.next_deadline() is None


def test_a_process_that_ended_is_not_due(fake_clock: FakeClock) -> None:
    watched = Watched(fake_clock, max_lifetime=100.0, max_memory=100 * MEGABYTE)
    watched.recycling.end()
    assert watched.loop.timers.next_deadline() is None
    watched.pass_time(1000.0)
    assert watched.due == []
