"""What a call costs in a program that traces."""

from __future__ import annotations

from benchmarks.contenders import FLOOR, GAIA, TRACED, UNSAMPLED, WITH_CONTENT, WITHOUT_CONTENT
from benchmarks.driver_process import CORES
from benchmarks.figures import percentile
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "tracing"
_TABLE = "64 B, two cores, traced"
_SIZE = 64
_CONTENDERS = (FLOOR, GAIA, UNSAMPLED, TRACED, WITHOUT_CONTENT, WITH_CONTENT)
_CALLS = 400
_ROUNDS = 10


def measure(session: Session) -> None:
    session.say("tracing: without a tracer, with one that records nothing, with one that records all, and content")
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    run = session.run
    with session.drivers(SECTION, servers=1, among=_CONTENDERS) as drivers:
        if CORES:
            for driver in drivers:
                driver.place(CORES[0], CORES[-1])
        # The first round warms up, and is thrown away.
        for number in range(session.effort.rounds(_ROUNDS, 3) + 1):
            for driver in drivers:
                with session.turn(SECTION, driver.contender):
                    latencies, processor = driver.call(_SIZE, calls)
                    figures = {"p50": percentile(latencies, 0.50), "p99": percentile(latencies, 0.99)}
                    for column, figure in {**figures, "processor time": processor / calls}.items():
                        if number > 0:
                            row = run.row(SECTION, _TABLE, column, "seconds")
                            row.values.setdefault(driver.contender.key, []).append(figure)
