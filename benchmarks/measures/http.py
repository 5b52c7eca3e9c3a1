"""What a call over Streamable HTTP takes, with answers in JSON and in event streams, alone and among many."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.contenders import FLOOR, HTTP_CLIENT, RAW_SOCKET, Contender
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.http_echo_server import HttpEchoServer
from benchmarks.session import Case, Session, numbered

SECTION = "http"
_SMALL = Case("64 B, two cores", 64, calls=150, rounds=8)
_ONE_CORE = Case("64 B, one core", 64, calls=150, rounds=6, together=True)
_LARGE = Case("64 KiB, two cores", 64 * 1024, calls=50, rounds=5)
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
                table, column = f"{answers}, calls per second", numbered(callers, "caller")
                row = session.run.row(SECTION, table, column, "calls/s", more_is_better=True)
                session.measure_crowd(row, drivers, callers, 1, _SECONDS, _CROWD_ROUNDS)


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


def _measure_case(session: Session, drivers: list[DriverProcess], answers: str, case: Case) -> None:
    table = f"{answers}, {case.title}"
    for taken in session.rounds_of_calls(SECTION, drivers, case._replace(title=table)):
        for contender, calls in taken.items():
            for column, figure in {**calls.figures(50, 95, 99), "processor time": calls.processor}.items():
                session.add(contender, SECTION, table, column, figure, "seconds")
