"""Which calls a fault happens at."""

import pytest

from gaia.testing.fake_state import Fault, FaultPlan

HANG = Fault("hang")


def outcomes(plan: FaultPlan, *tools: str) -> list[int]:
    """How many faults happen at calls of these tools."""
    return [len(plan.at_call(tool)) for tool in tools]


def test_it_happens_at_the_nth_call_once() -> None:
    plan = FaultPlan()
    plan.add(HANG, None, 2, 1)
    assert outcomes(plan, "a", "b", "a", "b") == [0, 1, 0, 0]


def test_only_calls_of_its_tool_count() -> None:
    plan = FaultPlan()
    plan.add(HANG, "a", 2, 1)
    assert outcomes(plan, "a", "b", "b", "a", "a") == [0, 0, 0, 1, 0]


def test_it_happens_as_often_as_it_is_told_to() -> None:
    plan = FaultPlan()
    plan.add(HANG, None, 2, 2)
    assert outcomes(plan, "a", "a", "a", "a") == [0, 1, 1, 0]


def test_it_may_happen_for_ever() -> None:
    plan = FaultPlan()
    plan.add(HANG, "a", 1, None)
    assert outcomes(plan, *["a"] * 50) == [1] * 50


def test_several_happen_in_the_order_of_adding() -> None:
    plan = FaultPlan()
    junk = Fault("junk", data=b"x")
    plan.add(junk, None, 1, 1)
    plan.add(HANG, "a", 1, 1)
    assert plan.at_call("a") == [junk, HANG]


def test_calls_count_from_the_moment_when_it_was_added() -> None:
    plan = FaultPlan()
    outcomes(plan, "a", "a")
    plan.add(HANG, "a", 1, 1)
    assert outcomes(plan, "a", "a") == [1, 0]


def test_cleared_faults_do_not_happen() -> None:
    plan = FaultPlan()
    plan.add(HANG, None, 1, None)
    plan.clear()
    assert outcomes(plan, "a") == [0]


@pytest.mark.parametrize(("nth", "times", "name"), [(0, 1, "nth"), (1, 0, "times"), (-1, 1, "nth")])
def test_a_number_below_one_is_refused(nth: int, times: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: must be 1 or more"):
        FaultPlan().add(HANG, None, nth, times)
