"""How often something may happen."""

from gaia.mcp.supervision.maintenance import TokenBucket


def test_a_burst_and_then_one_each_interval() -> None:
    bucket = TokenBucket(burst=3, interval=2.0)
    assert [bucket.wait(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]
    assert bucket.wait(11.0) == 1.0
    assert [bucket.wait(12.0), bucket.wait(12.0)] == [0.0, 2.0]


def test_after_a_while_the_burst_is_there_again_and_no_more_than_it() -> None:
    bucket = TokenBucket(burst=2, interval=1.0)
    for _ in range(2):
        assert bucket.wait(0.0) == 0.0
    assert [bucket.wait(1000.0) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_what_may_not_happen_does_not_count() -> None:
    bucket = TokenBucket(burst=1, interval=1.0)
    assert bucket.wait(0.0) == 0.0
    for _ in range(10):
        assert bucket.wait(0.5) == 0.5
    assert bucket.wait(1.0) == 0.0
