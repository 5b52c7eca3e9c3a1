"""What a call costs in a program that traces or meters, and how much of that OpenTelemetry itself takes."""

from __future__ import annotations

from benchmarks.contenders import (
    FLOOR,
    GAIA,
    METERED,
    OWN_SPAN,
    SPAN_AROUND_CALL,
    TRACED,
    UNSAMPLED,
    UNSAMPLED_SPAN_AROUND_CALL,
    WITH_CONTENT,
    WITHOUT_CONTENT,
)
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "tracing"
_ADDED = "added to the p50 of a call of 64 B"
_SIZE = 64
_AROUND_CALL = (SPAN_AROUND_CALL, UNSAMPLED_SPAN_AROUND_CALL)
_CONTENDERS = (FLOOR, OWN_SPAN, *_AROUND_CALL, GAIA, UNSAMPLED, TRACED, WITHOUT_CONTENT, WITH_CONTENT, METERED)
_ONLY_ADDED = {OWN_SPAN.key, *(contender.key for contender in _AROUND_CALL)}
_CALLS = 400
_ROUNDS = 12


def measure(session: Session) -> None:
    with session.drivers(SECTION, servers=1, among=_CONTENDERS) as drivers:
        _measure_where(session, drivers, "one core")
        _measure_where(session, drivers, "two cores")


def _measure_where(session: Session, drivers: list[DriverProcess], where: str) -> None:
    session.say(f"tracing, {where}: with a tracer that records nothing, some, all, and with a meter")
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    if CORES:
        for driver in drivers:
            driver.place(CORES[0], CORES[0 if where == "one core" else -1])
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(_ROUNDS, 3) + 1):
        medians = {}
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                latencies, processor = driver.call(_SIZE, calls)
                medians[driver.contender.key] = percentile(latencies, 0.50)
                if number > 0:
                    _add(session, driver.contender.key, where, latencies, processor / calls)
        if number > 0:
            _add_differences(session, where, medians)


def _add(session: Session, contender: str, where: str, latencies: list[float], processor: float) -> None:
    if contender not in _ONLY_ADDED:
        figures = {"p50": percentile(latencies, 0.50), "p99": percentile(latencies, 0.99)}
        for column, figure in {**figures, "processor time": processor}.items():
            row = session.run.row(SECTION, f"64 B, {where}, traced", column, "seconds")
            row.values.setdefault(contender, []).append(figure)


def _add_differences(session: Session, where: str, medians: dict[str, float]) -> None:
    """What each contender takes more than one without tracing takes in the same round."""
    row = session.run.row(SECTION, _ADDED, where, "seconds")
    for contender, median in medians.items():
        if contender == OWN_SPAN.key:
            row.values.setdefault(contender, []).append(median)
        elif contender not in (FLOOR.key, GAIA.key) and GAIA.key in medians:
            row.values.setdefault(contender, []).append(median - medians[GAIA.key])
