"""Tools of agent frameworks: each framework's own MCP client, and gaia-mcp's adapter in the same place."""

from __future__ import annotations

from benchmarks.contenders import Contender
from benchmarks.driver_process import DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

SECTION = "adapters"
_TABLE = "calls of 64 B, and kill -9"
_CALL, _FIRST, _SECOND = "p50 of a call", "next good answer", "killed again at once"
_CALLS, _WARM_UP = 100, 10
_ROUNDS = 5
_GIVE_UP_SECONDS = 3.0


def measure(session: Session) -> None:
    session.say("adapters: calls by agent frameworks")
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    for _ in range(session.effort.rounds(_ROUNDS, 1)):
        for contender in session.frameworks:
            # One that did not recover is measured on: what its calls take is known all the same.
            _measure(session, contender, calls)


def _measure(session: Session, contender: Contender, calls: int) -> None:
    with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
        driver.load()
        driver.connect(1)
        driver.call(64, _WARM_UP)
        latencies, _ = driver.call(64, calls)
        session.add(contender, SECTION, _TABLE, _CALL, percentile(latencies, 0.50), "seconds")
        if not session.able(SECTION, [contender]):
            return
        if not driver.servers():
            session.fail(SECTION, contender, "each call has a server of its own; between calls there is none to kill")
            return
        for column in (_FIRST, _SECOND):
            session.add(contender, SECTION, _TABLE, column, driver.recover(_GIVE_UP_SECONDS), "seconds")
