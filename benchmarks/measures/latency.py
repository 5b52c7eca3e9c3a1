"""How long a call takes, one after the other, for small, middling and large texts; and what it costs the processor."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "latency"
PROCESSOR = "processor time"
_PERCENTILES = (50, 95, 99)


class _Case(NamedTuple):
    title: str
    size: int
    together: bool
    calls: int
    """In a round of a full run."""
    rounds: int


_CASES = (
    _Case("64 B, two cores", 64, together=False, calls=400, rounds=15),
    _Case("64 B, one core", 64, together=True, calls=400, rounds=10),
    _Case("10 KiB, two cores", 10 * 1024, together=False, calls=300, rounds=10),
    _Case("1 MiB, two cores", 1024 * 1024, together=False, calls=20, rounds=10),
)


def measure(session: Session) -> None:
    with session.drivers(SECTION, servers=1) as drivers:
        for case in _CASES:
            _measure_case(session, drivers, case)


def _measure_case(session: Session, drivers: list[DriverProcess], case: _Case) -> None:
    if CORES:
        client, server = CORES[0], CORES[0 if case.together else -1]
        for driver in drivers:
            driver.place(client, server)
    calls = session.effort.amount(case.calls, max(5, case.calls // 4))
    session.say(f"latency, {case.title}: {calls} calls a round")
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(case.rounds, 3) + 1):
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                latencies, processor = driver.call(case.size, calls)
                if number > 0:
                    _add(session, driver.contender.key, case, latencies, processor / calls)


def _add(session: Session, contender: str, case: _Case, latencies: list[float], processor: float) -> None:
    for rank in _PERCENTILES:
        row = session.run.row(SECTION, case.title, f"p{rank}", "seconds")
        row.values.setdefault(contender, []).append(percentile(latencies, rank / 100))
    row = session.run.row(PROCESSOR, "of one call", case.title, "seconds")
    row.values.setdefault(contender, []).append(processor)
