"""Figures about the calls of one server."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.supervision.status import CallStatistics


def test_without_calls_there_are_no_latencies() -> None:
    statistics = CallStatistics()
    assert (statistics.calls, statistics.errors) == (0, 0)
    assert statistics.percentiles(0.5, 0.95) == [None, None]


def test_calls_and_errors_are_counted() -> None:
    statistics = CallStatistics()
    for failed in (True, False, True):
        statistics.record(1.0, failed=failed)
    assert (statistics.calls, statistics.errors) == (3, 2)


@pytest.mark.parametrize(
    ("latencies", "rank", "expected"),
    [
        ([7], 0.5, 7),
        ([7], 0.95, 7),
        ([2, 1], 0.5, 1),
        ([3, 1, 2], 0.5, 2),
        ([4, 1, 3, 2], 0.5, 2),
        ([6, 5, 4, 3, 2, 1], 0.5, 3),
        (range(1, 101), 0.5, 50),
        (range(1, 101), 0.95, 95),
        (range(1, 22), 0.95, 20),
        ([1, 2, 3], 0.0, 1),
        ([1, 2, 3], 1.0, 3),
    ],
)
def test_a_percentile_is_the_smallest_latency_that_this_share_does_not_exceed(
    latencies: list[float], rank: float, expected: float
) -> None:
    statistics = CallStatistics()
    for latency in latencies:
        statistics.record(latency, failed=False)
    assert statistics.percentiles(rank) == [expected]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=100), st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.95, 0.99]))
def test_it_is_one_that_was_really_measured(latencies: list[int], rank: float) -> None:
    statistics = CallStatistics()
    for latency in latencies:
        statistics.record(latency, failed=False)
    (percentile,) = statistics.percentiles(rank)
    assert percentile in latencies
    needed = math.ceil(rank * len(latencies))
    assert sum(latency <= percentile for latency in latencies) >= needed
    assert sum(latency < percentile for latency in latencies) < needed


def test_percentiles_speak_of_the_last_calls_only() -> None:
    statistics = CallStatistics()
    for _ in range(1000):
        statistics.record(100.0, failed=True)
    for _ in range(512):
        statistics.record(1.0, failed=False)
    assert statistics.percentiles(1.0) == [1.0]
    assert (statistics.calls, statistics.errors) == (1512, 1000)


def test_no_call_is_lost_when_many_threads_record() -> None:
    statistics = CallStatistics()

    def record(_: int) -> None:
        for _ in range(1000):
            statistics.record(0.1, failed=True)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(record, range(8)))
    assert (statistics.calls, statistics.errors) == (8000, 8000)
