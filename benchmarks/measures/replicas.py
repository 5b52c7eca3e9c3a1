"""What replicas of a server give: calls of a tool that sleeps, and of one that computes."""

from __future__ import annotations

from benchmarks.contenders import GAIA, REPLICATED, SLEEP_ALONE
from benchmarks.driver_process import DriverProcess
from benchmarks.session import Session, numbered

SECTION = "replicas"

_REPLICAS = (1, 2, 3, 6)
_ROUNDS, _SECONDS = 3, 5.0
_SLEEP = 0.1


def measure(session: Session) -> None:
    if GAIA not in session.able(SECTION):
        return
    for contender in session.able(SECTION, [REPLICATED]):
        with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
            for replicas in _REPLICAS:
                _measure(session, driver, replicas, "sleep", "calls per second of a tool that sleeps 100 ms")
            for replicas in _REPLICAS[:2]:
                _measure(session, driver, replicas, "compute", "calls per second of a tool that computes")


def _measure(session: Session, driver: DriverProcess, replicas: int, tool: str, table: str) -> None:
    column = numbered(replicas, "replica")
    session.say(f"replicas: {tool}, {column}")
    row = session.run.row(SECTION, table, column, "calls/s", more_is_better=True)
    for _ in range(session.effort.rounds(_ROUNDS, 1)):
        answer = driver.ask(do="crowd", replicas=replicas, seconds=_SECONDS, tool=tool, arguments={"seconds": _SLEEP})
        row.add(REPLICATED, answer["calls"] / answer["seconds"])
        if tool == "sleep":
            row.add(SLEEP_ALONE, replicas / _SLEEP)
