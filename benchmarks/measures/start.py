"""How long it takes until the first answer, and which part of that is importing."""

from __future__ import annotations

import time

from benchmarks.driver_process import DriverProcess
from benchmarks.session import Session

SECTION = "start"
_TABLE = "cold start"
_ROUNDS = 5


def measure(session: Session) -> None:
    session.say("start: a new process each time")
    run = session.run
    imports = run.row(SECTION, _TABLE, "import", "seconds")
    connects = run.row(SECTION, _TABLE, "server, handshake, first call", "seconds")
    totals = run.row(SECTION, _TABLE, "from starting Python to the first answer", "seconds")
    # The first round leaves bytecode and warm caches behind, as any program's second start finds them.
    for number in range(session.effort.rounds(_ROUNDS, 2) + 1):
        for contender in session.able(SECTION):
            with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
                imported = driver.load()
                began = time.perf_counter()
                driver.connect(1)
                driver.call(64, 1)
                now = time.perf_counter()
                if number > 0:
                    imports.add(contender, imported)
                    connects.add(contender, now - began)
                    totals.add(contender, now - driver.started)
