"""How many calls a second are answered when many ask at once, on one server and on eight."""

from __future__ import annotations

from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "throughput"
_CALLERS = (1, 8, 32, 128)
_SERVERS = (1, 8)
_FREE_CALLERS = 32
_ROUNDS = 5
_SECONDS = 0.3


def measure(session: Session) -> None:
    with session.drivers(SECTION, servers=max(_SERVERS)) as drivers:
        if CORES:
            for driver in drivers:
                driver.place(CORES[0], CORES[-1])
        for servers in _SERVERS:
            for callers in _CALLERS:
                _measure_crowd(session, drivers, callers, servers, "two cores")
        for driver in drivers:
            driver.place(None, None)
        _measure_crowd(session, drivers, _FREE_CALLERS, 1, "any core")


def _measure_crowd(session: Session, drivers: list[DriverProcess], callers: int, servers: int, where: str) -> None:
    table = f"{servers} server{'s' * (servers > 1)}, {where}"
    column = f"{callers} caller{'s' * (callers > 1)}"
    session.say(f"throughput, {table}, {column}")
    row = session.run.row(SECTION, table, column, "calls/s", more_is_better=True)
    for _ in range(session.effort.rounds(_ROUNDS, 2)):
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                figure = driver.crowd(callers, servers, _SECONDS)
                row.values.setdefault(driver.contender.key, []).append(figure)
