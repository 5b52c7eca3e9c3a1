"""How long an awaited call takes: gaia-mcp from synchronous code, awaited, and the official SDK, traced and not."""

from __future__ import annotations

from benchmarks.contenders import AWAITED, AWAITED_TRACED, GAIA, SDK, SDK_TRACED, TRACED
from benchmarks.session import Case, Session, place

SECTION = "asyncio"
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
            for together in (True, False):
                place(drivers, together=together)
                case = Case(f"64 B, {'one core' if together else 'two cores'}{traced}", 64, calls=300, rounds=_ROUNDS)
                for taken in session.rounds_of_calls(SECTION, drivers, case):
                    for contender, calls in taken.items():
                        figures = {**calls.figures(50, 99), "processor time": calls.processor}
                        for column, figure in figures.items():
                            session.add(contender, SECTION, case.title, column, figure, "seconds")
            row = session.run.row(SECTION, f"{_CALLERS} tasks at once{traced}", "calls", "calls/s", more_is_better=True)
            tasks = [driver for driver in drivers if driver.contender not in _IN_THREADS]
            session.measure_crowd(row, tasks, _CALLERS, 1, _SECONDS, _ROUNDS // 2)
