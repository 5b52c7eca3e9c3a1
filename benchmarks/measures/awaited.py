"""How long an awaited call takes: gaia-mcp from synchronous code, awaited, and the official SDK, traced and not."""

from __future__ import annotations

from benchmarks.contenders import AWAITED, AWAITED_TRACED, GAIA, SDK, SDK_TRACED, TRACED
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "asyncio"
_SIZE = 64
_CALLS = 300
_ROUNDS = 10
_CALLERS = 1000
_SECONDS = 0.5
_PLAIN = (GAIA, AWAITED, SDK)
_TRACED = (TRACED, AWAITED_TRACED, SDK_TRACED)
_IN_THREADS = (GAIA, TRACED)
"""A thousand threads are another matter than a thousand tasks."""


def measure(session: Session) -> None:
    without = () if SDK in session.able(SECTION) else (SDK, SDK_TRACED)
    for traced, contenders in (("", _PLAIN), (", traced", _TRACED)):
        among = [contender for contender in contenders if contender not in without]
        with session.drivers(SECTION, servers=1, among=among) as drivers:
            _measure_calls(session, drivers, "one core" + traced)
            _measure_calls(session, drivers, "two cores" + traced)
            _measure_crowd(session, [each for each in drivers if each.contender not in _IN_THREADS], traced)


def _measure_calls(session: Session, drivers: list[DriverProcess], where: str) -> None:
    session.say(f"asyncio, {where}: awaited calls")
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    if CORES:
        for driver in drivers:
            driver.place(CORES[0], CORES[0 if where.startswith("one core") else -1])
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(_ROUNDS, 3) + 1):
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                latencies, processor = driver.call(_SIZE, calls)
                if number > 0:
                    figures = {"p50": percentile(latencies, 0.50), "p99": percentile(latencies, 0.99)}
                    for column, figure in {**figures, "processor time": processor / calls}.items():
                        row = session.run.row(SECTION, f"64 B, {where}", column, "seconds")
                        row.values.setdefault(driver.contender.key, []).append(figure)


def _measure_crowd(session: Session, drivers: list[DriverProcess], traced: str) -> None:
    session.say(f"asyncio, {_CALLERS} tasks at once{traced}")
    row = session.run.row(SECTION, f"{_CALLERS} tasks at once{traced}", "calls", "calls/s", more_is_better=True)
    for _ in range(session.effort.rounds(_ROUNDS // 2, 2)):
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                row.values.setdefault(driver.contender.key, []).append(driver.crowd(_CALLERS, 1, _SECONDS))
