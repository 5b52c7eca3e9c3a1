"""How many calls a second are answered when many ask at once, on one server and on eight."""

from __future__ import annotations

from benchmarks.driver_process import DriverProcess
from benchmarks.session import Session, numbered, place

SECTION = "throughput"
_CALLERS = (1, 8, 32, 128)
_SERVERS = (1, 8)
_FREE_CALLERS = 32
_ROUNDS = 5
_SECONDS = 0.3


def measure(session: Session) -> None:
    with session.drivers(SECTION, servers=max(_SERVERS)) as drivers:
        place(drivers, together=False)
        for servers in _SERVERS:
            for callers in _CALLERS:
                _measure_crowd(session, drivers, callers, servers, "two cores")
        for driver in drivers:
            driver.place(None, None)
        _measure_crowd(session, drivers, _FREE_CALLERS, 1, "any core")


def _measure_crowd(session: Session, drivers: list[DriverProcess], callers: int, servers: int, where: str) -> None:
    table, column = f"{numbered(servers, 'server')}, {where}", numbered(callers, "caller")
    row = session.run.row(SECTION, table, column, "calls/s", more_is_better=True)
    session.measure_crowd(row, drivers, callers, servers, _SECONDS, _ROUNDS)
