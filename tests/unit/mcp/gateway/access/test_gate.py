"""One limit: when it lets a call pass, and whose turn it is among those that wait."""

from dataclasses import dataclass

from gaia.mcp.gateway.access.gate import Gate
from gaia.mcp.gateway.access.settings import Limit


@dataclass(eq=False)
class Waiting:
    client: str
    parked_at: Gate | None = None


def test_calls_at_once_are_counted_until_they_leave() -> None:
    gate = Gate("g", Limit(concurrent=1), 0.0)
    assert gate.delay(0.0) == 0
    gate.enter()
    assert gate.delay(0.0) is None
    gate.leave()
    assert gate.delay(0.0) == 0


def test_a_bucket_says_when_its_next_token_comes() -> None:
    gate = Gate("g", Limit(per_second=4, burst=1), 0.0)
    gate.enter()
    assert gate.delay(0.0) == 0.25
    assert gate.delay(0.125) == 0.125
    assert gate.delay(0.25) == 0


def test_turns_go_round_the_clients_and_the_lanes_of_each() -> None:
    gate = Gate("g", Limit(concurrent=1), 0.0)
    lanes = [Waiting("ann"), Waiting("ann"), Waiting("bob"), Waiting("eve")]
    for lane in lanes:
        gate.park(lane)
    gate.unpark(lanes[3])
    assert lanes[0].parked_at is gate
    taken = [gate.next_lane() for _ in range(3)]
    assert taken == [lanes[0], lanes[2], lanes[1]]
    assert all(lane.parked_at is None for lane in lanes)
    assert not gate.waiting


def test_other_figures_keep_what_fits_into_the_bucket() -> None:
    gate = Gate("g", Limit(per_second=10, burst=10), 0.0)
    gate.change(Limit(per_second=1, burst=2), 0.0)
    gate.enter()
    gate.enter()
    assert gate.delay(0.0) == 1


def test_an_idle_gate_is_as_a_new_one() -> None:
    gate = Gate("g", Limit(concurrent=3, per_second=1), 0.0)
    assert gate.is_idle(0.0)
    gate.enter()
    assert not gate.is_idle(5.0)
    gate.leave()
    assert gate.is_idle(5.0)
    assert gate.describe() == "g: 3 at once and 1 per second"
