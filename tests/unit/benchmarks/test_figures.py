"""Figures about rounds, and how people read them."""

import pytest

from benchmarks.figures import amount, amount_with_spread, percentile, ratio, spread


class TestPercentiles:
    @pytest.mark.parametrize(("share", "value"), [(0.01, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
    def test_are_values_that_were_measured(self, share: float, value: float) -> None:
        assert percentile(list(range(100, 0, -1)), share) == value

    def test_of_a_single_value_are_that_value(self) -> None:
        assert {percentile([7.0], share) for share in (0.01, 0.5, 0.99)} == {7.0}


class TestRatios:
    def test_compare_each_round_with_its_own_round(self) -> None:
        """A round in which the machine was three times as slow says as much as any other."""
        assert ratio([2.0, 6.0, 2.0], [1.0, 3.0, 1.0]) == 2.0
        assert ratio([2.0, 2.0, 6.0], [1.0, 1.0, 3.0]) == 2.0

    def test_compare_medians_where_one_has_fewer_rounds(self) -> None:
        assert ratio([4.0], [1.0, 2.0, 3.0]) == 2.0


def test_a_spread_is_the_middle_half() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0, 4.0)


class TestWords:
    @pytest.mark.parametrize(
        ("value", "unit", "words"),
        [
            (45.26e-6, "seconds", "45.3 µs"),
            (0.0021, "seconds", "2.10 ms"),
            (0.626, "seconds", "626 ms"),
            (2.5, "seconds", "2.50 s"),
            (-3e-6, "seconds", "-3 µs"),
            (23456.7, "calls/s", "23,457 calls/s"),
            (34 * 1024 * 1024, "bytes", "34 MiB"),
            (150 * 1024, "bytes", "150 KiB"),
            (605, "count", "605"),
            (0, "seconds", "0 µs"),
        ],
    )
    def test_have_three_digits_and_a_unit(self, value: float, unit: str, words: str) -> None:
        assert amount(value, unit) == words

    def test_show_the_spread_in_the_unit_of_the_median(self) -> None:
        assert amount_with_spread([0.0009, 0.0010, 0.0011], "seconds") == "1 ms (0.90–1.10)"  # noqa: RUF001

    def test_leave_out_a_spread_that_does_not_show(self) -> None:
        assert amount_with_spread([605.0, 605.0], "count") == "605"
        assert amount_with_spread([0.0, 0.0], "bytes") == "0 MiB"
