"""What a sandbox adds to the start of a server, and to a call."""

from __future__ import annotations

import time

from benchmarks.contenders import GAIA, SANDBOXED
from benchmarks.driver_process import DriverProcess
from benchmarks.session import Case, Session

SECTION = "sandbox"
_TABLE = "servers in a sandbox"
_SIZE = 64
_STARTS = 15


def measure(session: Session) -> None:
    session.say("sandbox: starts and calls with one and without")
    _starts(session)
    _calls(session)


def _starts(session: Session) -> None:
    run = session.run
    starts = run.row(SECTION, _TABLE, "server, handshake, first call", "seconds")
    # The first round leaves bytecode and warm caches behind, as any program's second start finds them.
    for number in range(session.effort.rounds(_STARTS, 2) + 1):
        for contender in (GAIA, SANDBOXED):
            with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
                driver.load()
                began = time.perf_counter()
                driver.connect(1)
                driver.call(_SIZE, 1)
                started = time.perf_counter() - began
                if number > 0:
                    starts.add(contender, started)


def _calls(session: Session) -> None:
    column = "one call of 64 B, p50"
    with session.drivers(SECTION, servers=1, among=(GAIA, SANDBOXED)) as drivers:
        for taken in session.rounds_of_calls(SECTION, drivers, Case(column, _SIZE, calls=400, rounds=40)):
            for contender, calls in taken.items():
                session.add(contender, SECTION, _TABLE, column, calls.figures(50)["p50"], "seconds")
