"""What a call over Streamable HTTP takes, with answers in JSON and in event streams, alone and among many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.contenders import FLOOR, HTTP_CLIENT, RAW_SOCKET, Contender
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.figures import percentile
from benchmarks.http_echo_server import HttpEchoServer
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "http"
_PERCENTILES = (50, 95, 99)


class _Case(NamedTuple):
    title: str
    size: int
    together: bool
    calls: int
    """In a round of a full run."""
    rounds: int


_SMALL = _Case("64 B, two cores", 64, together=False, calls=150, rounds=8)
_ONE_CORE = _Case("64 B, one core", 64, together=True, calls=150, rounds=6)
_LARGE = _Case("64 KiB, two cores", 64 * 1024, together=False, calls=50, rounds=5)
_CASES = {"JSON answers": (_SMALL, _ONE_CORE, _LARGE), "event-stream answers": (_SMALL, _LARGE)}
_EVENTS = "event-stream answers"
_CALLERS = (1, 32, 128)
_CROWD_ROUNDS = 3
_SECONDS = 0.3


def measure(session: Session) -> None:
    for answers, cases in _CASES.items():
        with (
            HttpEchoServer(events=answers == _EVENTS) as server,
            session.drivers(SECTION, 1, among=_contenders(session), server=[server.url]) as drivers,
        ):
            for case in cases:
                _place(server, drivers, together=case.together)
                _measure_case(session, drivers, answers, case)
            _place(server, drivers, together=False)
            for callers in _CALLERS:
                _measure_crowd(session, drivers, answers, callers)


def _contenders(session: Session) -> Sequence[Contender]:
    """Those of the other measures, with a socket in place of the pipe."""
    clients = session.able(SECTION)
    floors = [RAW_SOCKET, HTTP_CLIENT] if FLOOR in clients else []
    return session.able(SECTION, [*floors, *(client for client in clients if client is not FLOOR)])


def _place(server: HttpEchoServer, drivers: list[DriverProcess], *, together: bool) -> None:
    if CORES:
        server.place(CORES[0 if together else -1])
        for driver in drivers:
            driver.place(CORES[0], None)


def _measure_case(session: Session, drivers: list[DriverProcess], answers: str, case: _Case) -> None:
    calls = session.effort.amount(case.calls, max(5, case.calls // 4))
    session.say(f"http, {answers}, {case.title}: {calls} calls a round")
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(case.rounds, 3) + 1):
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                latencies, processor = driver.call(case.size, calls)
                if number > 0:
                    _add(session, driver.contender.key, f"{answers}, {case.title}", latencies, processor / calls)


def _add(session: Session, contender: str, table: str, latencies: list[float], processor: float) -> None:
    figures = {f"p{rank}": percentile(latencies, rank / 100) for rank in _PERCENTILES}
    for column, figure in {**figures, "processor time": processor}.items():
        session.run.row(SECTION, table, column, "seconds").values.setdefault(contender, []).append(figure)


def _measure_crowd(session: Session, drivers: list[DriverProcess], answers: str, callers: int) -> None:
    column = f"{callers} caller{'s' * (callers > 1)}"
    session.say(f"http, {answers}, {column}")
    row = session.run.row(SECTION, f"{answers}, calls per second", column, "calls/s", more_is_better=True)
    for _ in range(session.effort.rounds(_CROWD_ROUNDS, 2)):
        for driver in session.left(SECTION, drivers):
            with session.turn(SECTION, driver.contender):
                figure = driver.crowd(callers, 1, _SECONDS)
                row.values.setdefault(driver.contender.key, []).append(figure)
