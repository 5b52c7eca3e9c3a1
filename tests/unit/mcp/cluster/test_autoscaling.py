from gaia.mcp.cluster.autoscaling import Autoscaling
from gaia.mcp.config.placement import Replicas


def scaling() -> Autoscaling:
    return Autoscaling(Replicas(min=1, max=8, target_in_flight=4))


def test_a_burst_adds_nothing() -> None:
    autoscaling = scaling()
    assert autoscaling.wanted(20, 1, 0.0) == 1
    assert autoscaling.wanted(3, 1, 1.0) == 1
    assert autoscaling.wanted(20, 1, 2.5) == 1, "it begins anew"


def test_as_many_are_added_as_were_needed_all_the_time() -> None:
    autoscaling = scaling()
    assert autoscaling.wanted(20, 1, 0.0) == 1
    assert autoscaling.wanted(12, 1, 1.0) == 1
    assert autoscaling.wanted(100, 1, 2.0) == 3


def test_a_pause_removes_nothing() -> None:
    autoscaling = scaling()
    assert autoscaling.wanted(0, 3, 0.0) == 3
    assert autoscaling.wanted(12, 3, 59.0) == 3
    assert autoscaling.wanted(0, 3, 61.0) == 3, "it begins anew"


def test_as_many_stay_as_were_needed_meanwhile() -> None:
    autoscaling = scaling()
    assert autoscaling.wanted(0, 5, 0.0) == 5
    assert autoscaling.wanted(7, 5, 30.0) == 5
    assert autoscaling.wanted(0, 5, 60.0) == 2


def test_the_bounds_hold() -> None:
    autoscaling = scaling()
    assert autoscaling.wanted(1000, 8, 0.0) == 8
    autoscaling.wanted(1000, 2, 1.0)
    assert autoscaling.wanted(1000, 2, 3.0) == 8
    assert autoscaling.wanted(0, 1, 100.0) == 1
