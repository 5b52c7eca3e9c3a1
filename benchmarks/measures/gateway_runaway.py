"""What one client of a gateway notices of another that calls as fast as its limits allow."""

from __future__ import annotations

from benchmarks.contenders import GATEWAY_GUARDED
from benchmarks.driver_process import DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

__all__ = ["ALONE", "BESIDE", "RUNAWAY", "measure"]

RUNAWAY = "gateway, runaway client"
"""The section."""

_TABLE = "calls of another client"
_COLUMNS = ("p50 alone", "p99 alone", "p50 beside it", "p99 beside it")
ALONE, BESIDE = f"{RUNAWAY}: {_TABLE}: {_COLUMNS[1]}", f"{RUNAWAY}: {_TABLE}: {_COLUMNS[3]}"
"""The rows that are compared."""

_ROUNDS = 7
_CALLS = 1_000
_SESSIONS = 32


def measure(session: Session) -> None:
    for contender in session.able(RUNAWAY, [each for each in session.gateways if each == GATEWAY_GUARDED]):
        calls = session.effort.amount(_CALLS, _CALLS // 5)
        session.say(f"gateway: a runaway client beside {calls} calls a round")
        with session.turn(RUNAWAY, contender), DriverProcess(contender, session.server) as driver:
            driver.connect(1)
            for _ in range(session.effort.rounds(_ROUNDS, 2)):
                alone, beside = driver.call_beside(_SESSIONS, calls)
                figures = [percentile(one, rank) for one in (alone, beside) for rank in (0.5, 0.99)]
                for column, figure in zip(_COLUMNS, figures, strict=True):
                    row = session.run.row(RUNAWAY, _TABLE, column, "seconds")
                    row.values.setdefault(contender.key, []).append(figure)
