"""When a limit and a circuit let a call pass, and whose turn it is among those that wait."""

from dataclasses import dataclass

import pytest

from gaia.mcp.gateway.access.gate import Circuit, Gate
from gaia.mcp.gateway.access.settings import CircuitSettings, Limit


@dataclass(eq=False)
class Waiting:
    client: str
    parked_at: Gate | None = None


def test_calls_at_once_are_counted_until_they_leave_and_an_idle_gate_is_as_a_new_one() -> None:
    gate = Gate("g", Limit(concurrent=1, per_second=1, burst=9), 0.0)
    assert (gate.delay(0.0), gate.is_idle(0.0)) == (0, True)
    gate.enter()
    assert (gate.delay(0.0), gate.is_idle(5.0)) == (None, False)
    gate.running -= 1
    assert (gate.delay(0.0), gate.is_idle(5.0)) == (0, True)
    assert gate.describe() == "g: 1 at once and 1 per second"


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


def circuit(failures: int = 2) -> Circuit:
    return Circuit("tool", CircuitSettings(failures=failures, window=10, cooldown=5))


def fail(subject: Circuit, now: float) -> None:
    subject.note(True, trial=False, now=now)


@pytest.mark.parametrize(("second", "retry_in"), [(10.0, 5), (10.5, None)])
def test_failures_within_the_window_open_it_and_those_that_are_far_apart_do_not(
    second: float, retry_in: float | None
) -> None:
    subject = circuit()
    fail(subject, 0.0)
    assert subject.is_closed
    fail(subject, second)
    assert subject.retry_in(second) == retry_in
    assert subject.is_closed is (retry_in is None)


def test_calls_from_before_say_nothing_when_it_is_open() -> None:
    subject = circuit(1)
    fail(subject, 0.0)
    fail(subject, 4.0)
    assert subject.retry_in(5.0) is None


def test_a_good_call_forgets_failures_and_one_that_says_nothing_does_not() -> None:
    subject = circuit()
    fail(subject, 0.0)
    subject.note(False, trial=False, now=1.0)
    fail(subject, 2.0)
    assert subject.is_closed
    subject.note(None, trial=False, now=2.0)
    fail(subject, 3.0)
    assert not subject.is_closed


def test_one_trial_at_a_time() -> None:
    subject = circuit(1)
    fail(subject, 0.0)
    assert subject.retry_in(5.0) is None
    assert subject.enter()
    assert subject.retry_in(6.0) == 1.0
    subject.note(True, trial=True, now=6.0)
    assert subject.retry_in(6.0) == 5
    assert subject.retry_in(11.0) is None
    assert subject.enter()
    subject.note(None, trial=True, now=12.0)
    assert subject.retry_in(12.0) is None, "a trial that was cancelled is followed by another"
    assert subject.enter()
    subject.note(False, trial=True, now=13.0)
    assert subject.is_closed
    assert not subject.enter()
