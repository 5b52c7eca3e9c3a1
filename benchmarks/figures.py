"""A few figures about a list of measurements. Everything is about whole rounds, so the list is short."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Spread", "percentile", "ratio", "spread"]


class Spread(NamedTuple):
    """The median of the rounds, and between what the middle half of them lies."""

    median: float
    low: float
    high: float


def percentile(values: Sequence[float], share: float) -> float:
    """The value that the given share (0 to 1) of all values does not exceed. Nearest rank: one that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), percentile(values, 0.25), percentile(values, 0.75))


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """How many times `others` the values are: the median over the rounds, each compared with its own round.

    What else the machine did in a round did it to both. Where one has fewer rounds, medians are compared.
    """
    if len(values) != len(others):
        return statistics.median(values) / statistics.median(others)
    return statistics.median(value / other for value, other in zip(values, others, strict=True))
