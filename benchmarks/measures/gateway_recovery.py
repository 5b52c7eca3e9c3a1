"""What a gateway's clients notice of a server that is killed: while it is idle, and while it has calls of all."""

from __future__ import annotations

from benchmarks.contenders import FLOOR, RAW_HTTP, Contender
from benchmarks.driver_process import DriverProcess
from benchmarks.session import Session

__all__ = ["IDLE", "UNDER_WAY", "measure"]

IDLE, UNDER_WAY = "gateway, server killed", "gateway, server killed with calls"
"""The sections."""

_CALLS = 32
_ROUNDS = 5
_GIVE_UP_SECONDS = 5.0


def measure(session: Session) -> None:
    gateways = [each for each in session.gateways if each.key != RAW_HTTP.key and len(each.arguments) == 1]
    for _ in range(session.effort.rounds(_ROUNDS, 1)):
        session.say("gateway: a server is killed")
        # The floor is what the server itself takes to start.
        for contender in (FLOOR, *session.able(IDLE, gateways)):
            with session.turn(IDLE, contender), DriverProcess(contender, session.server) as driver:
                driver.load()
                driver.connect(1)
                driver.call(64, 3)
                seconds = driver.recover(_GIVE_UP_SECONDS)
                row = session.run.row(IDLE, "while it is idle", "next good answer in the same session", "seconds")
                row.values.setdefault(contender.key, []).append(seconds)
        for contender in session.able(UNDER_WAY, gateways):
            _measure_loss(session, contender)


def _measure_loss(session: Session, contender: Contender) -> None:
    # Calls of its tool must not be repeated, so that each client has to be told.
    server = [*session.server, "0", "--unmarked"]
    with session.turn(UNDER_WAY, contender), DriverProcess(contender, server) as driver:
        driver.connect(1)
        seconds, with_delivery = driver.lose(_CALLS, _GIVE_UP_SECONDS)
        calls = f"with {_CALLS} calls under way"
        row = session.run.row(UNDER_WAY, calls, "until all clients are told", "seconds")
        row.values.setdefault(contender.key, []).append(seconds)
        column = "clients told whether it may have acted"
        row = session.run.row(UNDER_WAY, f"what is said of {_CALLS} calls", column, "count", more_is_better=True)
        row.values.setdefault(contender.key, []).append(with_delivery)
