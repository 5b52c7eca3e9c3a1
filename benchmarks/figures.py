"""Figures about a few rounds of measurements; how they are written, with their units, and in tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


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


_MIB = 1024 * 1024


def amount(value: float, unit: str) -> str:
    """One figure with its unit."""
    number, word = _scaled(value, unit)
    return f"{_digits(number)} {word}".strip()


def amount_with_spread(values: Sequence[float], unit: str) -> str:
    """The median, and between what the middle half of the rounds lies, in the median's unit."""
    median, low, high = spread(values)
    number, _ = _scaled(median, unit)
    factor = number / median if median else 1.0
    ends = f"{_digits(low * factor)}–{_digits(high * factor)}"  # noqa: RUF001 - a range
    return (
        amount(median, unit) if _digits(low * factor) == _digits(high * factor) else f"{amount(median, unit)} ({ends})"
    )


def _scaled(value: float, unit: str) -> tuple[float, str]:
    if unit == "seconds":
        if abs(value) < 0.001:
            return value * 1e6, "µs"
        return (value * 1e3, "ms") if abs(value) < 1 else (value, "s")
    if unit == "bytes":
        return (value / 1024, "KiB") if 0 < abs(value) < _MIB else (value / _MIB, "MiB")
    return value, "calls/s" if unit == "calls/s" else ""


def _digits(number: float) -> str:
    """Three digits that matter, and no fraction of large numbers."""
    if abs(number) >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def table(lines: list[list[str]]) -> list[str]:
    """A table in Markdown, aligned. The first line is the head; all have the same number of cells."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return [padded[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *padded[1:]]
