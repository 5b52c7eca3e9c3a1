"""A table as a picture: a dot for each figure on a logarithmic axis, and a line through the middle half of rounds."""

from __future__ import annotations

import math
from html import escape

from benchmarks.contenders import SHOWN
from benchmarks.figures import amount, spread
from benchmarks.results import Row

_WIDTH = 760
_LABELS = 170
_RIGHT = 24
_TOP = 30
_LINE = 26
_COLOURS = ("#2a6fbb", "#d9822b", "#3a9a5b", "#a0438f")
_INK = "#777"
"""Readable on a light and on a dark page."""


def plot(rows: list[Row]) -> str:
    """The SVG of one table's rows, which all have the same unit. The contenders are its lines."""
    contenders = [contender for contender in SHOWN if any(contender.key in row.values for row in rows)]
    axis = _Axis([value for row in rows for values in row.values.values() for value in values])
    bottom = _TOP + _LINE * len(contenders)
    parts = [*_grid(axis, bottom, rows[0].unit)]
    for line, contender in enumerate(contenders):
        y = _TOP + _LINE * line + _LINE / 2
        parts.append(_text(_LABELS - 10, y + 4, contender.title, "end"))
        for number, row in enumerate(rows):
            if contender.key in row.values:
                offset = (number - (len(rows) - 1) / 2) * 5
                parts.append(_dot(axis, row, contender.key, y + offset, _COLOURS[number % len(_COLOURS)]))
    parts.extend(_legend(rows, bottom + 42))
    height = bottom + 56
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{_INK}" role="img">\n'
        f"<title>{escape(rows[0].section)}: {escape(rows[0].table)}</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )


class _Axis:
    """Logarithmic, from a power of ten to another one, or at least over a factor of ten."""

    def __init__(self, values: list[float]) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self.low = math.floor(math.log10(min(positive)))
        self.high = max(math.ceil(math.log10(max(positive))), self.low + 1)

    def x(self, value: float) -> float:
        share = (math.log10(max(value, 10.0**self.low)) - self.low) / (self.high - self.low)
        return _LABELS + share * (_WIDTH - _LABELS - _RIGHT)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _grid(axis: _Axis, bottom: float, unit: str) -> list[str]:
    parts = []
    for tick in axis.ticks():
        x = axis.x(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{_INK}" opacity="0.25"/>')
        parts.append(_text(x, bottom + 16, amount(tick, unit), "middle"))
    return parts


def _dot(axis: _Axis, row: Row, contender: str, y: float, colour: str) -> str:
    median, low, high = spread(row.values[contender])
    return (
        f'<g stroke="{colour}" fill="{colour}"><title>{escape(row.column)}: {amount(median, row.unit)}</title>'
        f'<line x1="{axis.x(low):.1f}" y1="{y:.1f}" x2="{axis.x(high):.1f}" y2="{y:.1f}" stroke-width="2"/>'
        f'<circle cx="{axis.x(median):.1f}" cy="{y:.1f}" r="3.5"/></g>'
    )


def _legend(rows: list[Row], y: float) -> list[str]:
    parts, x = [], float(_LABELS)
    for number, row in enumerate(rows):
        parts.append(f'<circle cx="{x:.1f}" cy="{y - 4:.1f}" r="4" fill="{_COLOURS[number % len(_COLOURS)]}"/>')
        parts.append(_text(x + 9, y, row.column, "start"))
        x += 34 + 6.5 * len(row.column)
    return parts


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
