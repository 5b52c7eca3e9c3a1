"""Which call a server on trial gets, and what ends the trial."""

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from gaia.mcp.errors import CallTimeout, JsonRpcError, MCPError
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.follow_up import Trial
from gaia.runtime.event_loop import EventLoop
from gaia.testing import FakeClock

UNTIL = 30.0


class Bench:
    """A trial with calls that wait, and a server that a test plays."""

    def __init__(self, clock: FakeClock, calls: int) -> None:
        self.clock = clock
        self.loop = EventLoop(clock)
        self.calls = [cast(Call, Mock(error=None)) for _ in range(calls)]
        self.waiting = list(self.calls)
        self.on_ended: dict[int, Callable[[Call], None]] = {}
        self.passed = 0
        self.trial = Trial(cast(Any, self), self.loop, lambda _: None, self._pass)

    def admit_one(self, _connection: Connection, _refusal: object, on_ended: Callable[[Call], None]) -> Call | None:
        if not self.waiting:
            return None
        call = self.waiting.pop(0)
        self.on_ended[id(call)] = on_ended
        return call

    def _pass(self) -> None:
        self.passed += 1
        self.trial.end()

    def end(self, call: Call, error: MCPError | None) -> None:
        call.error = error
        self.on_ended[id(call)](call)
        for task in self.loop.drain():
            task()


@pytest.fixture
def bench(fake_clock: FakeClock) -> Bench:
    bench = Bench(fake_clock, 3)
    bench.trial.begin(cast(Connection, Mock()), fake_clock.monotonic() + UNTIL)
    return bench


@pytest.mark.parametrize("error", [None, JsonRpcError(-1, "no")], ids=["a result", "an error"])
def test_an_answer_of_any_kind_ends_it(bench: Bench, error: MCPError | None) -> None:
    assert bench.trial.is_under_way
    assert len(bench.waiting) == 2
    first = bench.calls[0]
    bench.trial.try_next()
    assert len(bench.waiting) == 2, "one call at a time"
    bench.end(first, error)
    assert bench.passed == 1
    assert not bench.trial.is_under_way


def test_a_call_without_an_answer_gives_way_to_the_next(bench: Bench) -> None:
    first, second, _ = bench.calls
    bench.end(first, CallTimeout("late"))
    assert bench.passed == 0
    assert len(bench.waiting) == 1
    bench.end(first, None)
    assert bench.passed == 0, "its turn is over"
    bench.end(second, None)
    assert bench.passed == 1


def test_time_ends_it_too(bench: Bench) -> None:
    tasks = bench.loop.timers.due(bench.clock.monotonic() + UNTIL)
    for task in tasks:
        task()
    assert bench.passed == 1


def test_after_its_end_no_call_is_handed_over(bench: Bench) -> None:
    bench.trial.end()
    bench.trial.try_next()
    assert len(bench.waiting) == 2
    assert bench.loop.timers.next_deadline() is None
