"""Whether a run is worse than a stored one. Where there is a floor, ratios to it are compared: machines may differ."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks.contenders import GAIA, floor_among
from benchmarks.figures import ratio
from benchmarks.results import Row, Run

_TOLERANCES = (
    # By the end of a row's key: how many times worse it may look before it counts, from how such rows differ between
    # runs of the same code on a machine that others use too.
    (": p99", 2.0),
    (": p95", 1.7),
    ("footprint: memory", 1.15),
    ("footprint:", 1.0),
    ("throughput:", 1.5),
)
_TOLERANCE = 1.4

_DIFFERENCES = ("steps",)
"""Sections whose figures are differences, which may be next to nothing."""


class Change(NamedTuple):
    """How one row has changed: `times` over 1 is worse, `tolerance` is how much of that may be chance."""

    key: str
    before: float
    now: float
    times: float
    tolerance: float

    @property
    def regressed(self) -> bool:
        return self.times > self.tolerance


def compare(now: Run, before: Run) -> list[Change]:
    """Rows that both runs have of gaia-mcp, in the order of the new run."""
    changes = []
    for row in now.rows:
        old = before.find(row.key)
        if row.section in _DIFFERENCES or old is None:
            continue
        if GAIA.key in row.values and GAIA.key in old.values:
            relative = _is_relative(row) and _is_relative(old)
            figure, reference = _figure(row, relative=relative), _figure(old, relative=relative)
            times = reference / figure if row.more_is_better else figure / reference
            changes.append(Change(row.key, reference, figure, times, _tolerance(row.key)))
    return changes


def _is_relative(row: Row) -> bool:
    """Whether it has a floor to compare with, and the machine matters."""
    return row.section != "footprint" and floor_among(row.values) is not None


def _figure(row: Row, *, relative: bool) -> float:
    """How many times the floor, or the bare figure."""
    values = row.values[GAIA.key]
    floor = floor_among(row.values) if relative else None
    return statistics.median(values) if floor is None else ratio(values, row.values[floor.key])


def _tolerance(key: str) -> float:
    return next((times for part, times in _TOLERANCES if key.endswith(part) or key.startswith(part)), _TOLERANCE)
