"""Many calls of one tool, and the buckets that they fall into."""

import itertools
import threading

import pytest

from gaia.cli.bench import Calls, histogram, one_by_one, together
from gaia.cli.rendering import bar, microseconds


class TestCallingOneByOne:
    def test_ends_with_the_last_call(self) -> None:
        made: list[int] = []
        calls = one_by_one(lambda: made.append(1), 7, seconds=60)

        assert len(calls.latencies) == len(made) == 7
        assert calls.seconds >= sum(calls.latencies)
        assert calls.rate == 7 / calls.seconds

    def test_ends_with_the_time_but_calls_once(self) -> None:
        assert len(one_by_one(lambda: None, 1000, seconds=0).latencies) == 1


class TestCallingTogether:
    def test_shares_the_calls(self) -> None:
        callers: set[int] = set()
        calls = together(lambda: callers.add(threading.get_ident()), callers=4, most=40, seconds=60)

        assert len(calls.latencies) == 40
        assert len(callers) == 4

    def test_is_really_at_once(self) -> None:
        everybody = threading.Barrier(3)

        assert len(together(lambda: everybody.wait(10), callers=3, most=3, seconds=60).latencies) == 3

    def test_ends_with_the_first_failure(self) -> None:
        def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            together(fail, callers=3, most=1000, seconds=60)


def test_percentiles_are_latencies_that_were_measured() -> None:
    calls = Calls([0.003, 0.001, 0.002, 0.004], 1.0)

    assert [calls.percentile(share) for share in (0.0, 0.5, 0.99, 1.0)] == [0.001, 0.002, 0.004, 0.004]


class TestHistograms:
    @pytest.mark.parametrize("latencies", [[0.001], [0.001, 0.0011], [1e-6, 100.0], [0.00099, 0.001, 0.0010001]])
    def test_lose_no_call_and_have_no_gap(self, latencies: list[float]) -> None:
        buckets = histogram(latencies)

        assert sum(bucket.calls for bucket in buckets) == len(latencies)
        assert all(before.high == after.low for before, after in itertools.pairwise(buckets))
        assert buckets[0].calls > 0
        assert buckets[-1].calls > 0
        assert len(buckets) <= 20

    def test_are_finer_where_latencies_are_close(self) -> None:
        (low, high, calls), *_ = histogram([0.00105, 0.0014])

        assert (low, high, calls) == (0.001, 0.00125, 1)


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, ""), (1, "████"), (0.5, "██"), (0.5 + 1 / 32, "██▏"), (0.0001, "▏"), (0.25, "█")]
)
def test_bars_show_eighths_and_hide_only_nothing(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


def test_short_durations_are_in_microseconds() -> None:
    assert [microseconds(value) for value in (0.0000421, 0.00099, 0.0025)] == ["42 µs", "990 µs", "2.50 ms"]
