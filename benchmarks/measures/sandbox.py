"""What a sandbox adds to the start of a server, and to a call."""

from __future__ import annotations

import time

from benchmarks.contenders import GAIA, SANDBOXED
from benchmarks.driver_process import DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "sandbox"
_TABLE = "servers in a sandbox"
_SIZE = 64
_CALLS = 400
_STARTS = 15
_ROUNDS = 40


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
                    starts.values.setdefault(contender.key, []).append(started)


def _calls(session: Session) -> None:
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    medians = session.run.row(SECTION, _TABLE, "one call of 64 B, p50", "seconds")
    with session.drivers(SECTION, servers=1, among=(GAIA, SANDBOXED)) as drivers:
        # The first round warms up, and is thrown away.
        for number in range(session.effort.rounds(_ROUNDS, 3) + 1):
            for driver in drivers:
                with session.turn(SECTION, driver.contender):
                    latencies, _ = driver.call(_SIZE, calls)
                    if number > 0:
                        medians.values.setdefault(driver.contender.key, []).append(percentile(latencies, 0.50))
