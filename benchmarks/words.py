"""Formats figures with their units."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import spread

__all__ = ["amount", "amount_with_spread"]

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
