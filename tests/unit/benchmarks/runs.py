"""Runs that were never made, with just the rows that a test is about."""

from benchmarks.contenders import FLOOR, GAIA
from benchmarks.results import Run, Unit

MIB = 1024 * 1024


def run_of(*rows: tuple[str, Unit, dict[str, list[float]]]) -> Run:
    """Rows by key, as in ``latency: 64 B, two cores: p50``."""
    run = Run(command="python -m benchmarks", date="2026-01-01", machine={"cores": "2"})
    for key, unit, values in rows:
        section, table, column = key.split(": ")
        run.row(section, table, column, unit, more_is_better=unit == "calls/s").values.update(values)
    return run


def against_floor(gaia: list[float], floor: list[float]) -> dict[str, list[float]]:
    return {GAIA.key: gaia, FLOOR.key: floor}
