"""How long it takes from killing a server to the next good answer, without any recovery code in the caller."""

from __future__ import annotations

from benchmarks.contenders import FLOOR
from benchmarks.driver_process import DriverProcess
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "recovery"
_ROUNDS = 5
_GIVE_UP_SECONDS = 3.0


def measure(session: Session) -> None:
    session.say("recovery: the server is killed")
    row = session.run.row(SECTION, "after kill -9", "next good answer", "seconds")
    for _ in range(session.effort.rounds(_ROUNDS, 1)):
        for contender in session.able(SECTION):
            if contender is FLOOR:
                continue
            with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
                driver.load()
                driver.connect(1)
                driver.call(64, 1)
                seconds = driver.recover(_GIVE_UP_SECONDS)
                row.values.setdefault(contender.key, []).append(seconds)
