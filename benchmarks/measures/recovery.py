"""How long it takes from killing a server to the next good answer, without any recovery code in the caller."""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks.contenders import GAIA, STANDBY, Contender
from benchmarks.driver_process import DriverFailed, DriverProcess
from benchmarks.session import Session

SECTION = "recovery"
_FIRST, _SECOND = "next good answer", "killed again at once"
_GIVE_UP_SECONDS = 3.0
_MAX_STANDBY_SECONDS = 10.0
_HANDSHAKE_SECONDS = 0.3
"""Far more than a stand-by needs from its start to being ready to take over."""

_POLL_SECONDS = 0.01


class _Case(NamedTuple):
    table: str
    start: float
    """Seconds that the server takes to start."""
    rounds: int


_CASES = (
    _Case("after kill -9", start=0.0, rounds=5),
    _Case("after kill -9 of a server that takes 1.5 s to start", start=1.5, rounds=3),
)


def measure(session: Session) -> None:
    for case in _CASES:
        session.say(f"recovery: {case.table}")
        for _ in range(session.effort.rounds(case.rounds, 1)):
            for contender in _contenders(session):
                with session.turn(SECTION, contender):
                    _recover(session, contender, case)


def _contenders(session: Session) -> list[Contender]:
    clients = session.able(SECTION)
    at = clients.index(GAIA) + 1 if GAIA in clients else 0
    return [*clients[:at], *(session.able(SECTION, [STANDBY]) if at else []), *clients[at:]]


def _recover(session: Session, contender: Contender, case: _Case) -> None:
    server = [*session.server, f"{case.start:g}"] if case.start else session.server
    with DriverProcess(contender, server) as driver:
        driver.load()
        driver.connect(1)
        driver.call(64, 1)
        if contender is STANDBY:
            _wait_for_standby(driver, case.start)
        for column in (_FIRST, _SECOND):
            seconds = driver.recover(case.start + _GIVE_UP_SECONDS)
            session.add(contender, SECTION, case.table, column, seconds, "seconds")


def _wait_for_standby(driver: DriverProcess, start: float) -> None:
    deadline = time.monotonic() + _MAX_STANDBY_SECONDS
    while len(driver.servers()) < 2:
        if time.monotonic() > deadline:
            raise DriverFailed(f"no stand-by was started within {_MAX_STANDBY_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    time.sleep(start + _HANDSHAKE_SECONDS)
