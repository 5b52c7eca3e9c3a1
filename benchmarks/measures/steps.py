"""What a call costs step by step: the difference between contenders of which each does one thing more than another."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.contenders import (
    FLOOR,
    GAIA,
    METERED,
    OVER_HTTP,
    PIPE_WITH_JSON,
    PIPE_WITH_THREAD,
    RAW_SOCKET,
    SOCKET_WITH_JSON,
    TRACED,
    TRANSPORT,
    TRANSPORT_OVER_HTTP,
    UNSAMPLED,
    WITHOUT_CONTENT,
    Contender,
)
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.http_echo_server import HttpEchoServer
from benchmarks.session import Case, Session, place

SECTION = "steps"
_CASE = Case("a call of 64 B, one core", 64, calls=400, rounds=15, together=True)
_WHOLE = "the whole call"


class _Step(NamedTuple):
    title: str
    contender: Contender
    """The first one that does this too."""


_WIRE = "the pipe or the socket, and the server"
_JSON = "JSON of the request and the answer"
_THREAD = "to the thread that reads, and back"
_TRANSPORT = "transport: calls by id, deadlines, checks; HTTP"
_MANAGER = "manager: tools and filters, call queue, supervision, result"

_STDIO = (
    _Step(_WIRE, FLOOR),
    _Step(_JSON, PIPE_WITH_JSON),
    _Step(_THREAD, PIPE_WITH_THREAD),
    _Step(_TRANSPORT, TRANSPORT),
    _Step(_MANAGER, GAIA),
)
_UNSAMPLED = (*_STDIO, _Step("a tracer that does not sample", UNSAMPLED))
_TRACED = (*_UNSAMPLED, _Step("a span", WITHOUT_CONTENT), _Step("arguments and result in the span", TRACED))
_PATHS = {
    GAIA: _STDIO,
    UNSAMPLED: _UNSAMPLED,
    TRACED: _TRACED,
    METERED: (*_STDIO, _Step("metrics", METERED)),
    OVER_HTTP: (
        _Step(_WIRE, RAW_SOCKET),
        _Step(_JSON, SOCKET_WITH_JSON),
        _Step(_TRANSPORT, TRANSPORT_OVER_HTTP),
        _Step(_MANAGER, OVER_HTTP),
    ),
}
"""By what is called, the steps from the floor to it."""


def measure(session: Session) -> None:
    with ExitStack() as stack:
        for taken in session.rounds_of_calls(SECTION, _drivers(session, stack), _CASE):
            _add(session, {contender: calls.figures(50)["p50"] for contender, calls in taken.items()})


def _drivers(session: Session, stack: ExitStack) -> list[DriverProcess]:
    """All of them, bound to one core with their servers."""
    server = stack.enter_context(HttpEchoServer())
    drivers: list[DriverProcess] = []
    for over_http, where in ((False, None), (True, [server.url])):
        steps = [step for contender, path in _PATHS.items() for step in path if (contender is OVER_HTTP) == over_http]
        among = list(dict.fromkeys(step.contender for step in steps))
        drivers += stack.enter_context(session.drivers(SECTION, servers=1, among=among, server=where))
    if CORES:
        server.place(CORES[0])
    place(drivers, together=True)
    return drivers


def _add(session: Session, medians: dict[Contender, float]) -> None:
    """The steps of one round. A path of which a contender is missing is left out."""
    paths = {called: path for called, path in _PATHS.items() if all(step.contender in medians for step in path)}
    figures: dict[str, dict[Contender, float]] = {step.title: {} for path in _PATHS.values() for step in path}
    figures[_WHOLE] = {}
    for called, path in paths.items():
        before = 0.0
        for step in path:
            figures[step.title][called] = medians[step.contender] - before
            before = medians[step.contender]
        figures[_WHOLE][called] = before
    for title, by_contender in figures.items():
        for called, figure in by_contender.items():
            session.add(called, SECTION, _CASE.title, title, figure, "seconds")
