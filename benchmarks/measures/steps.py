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
    UNSAMPLED,
    WITHOUT_CONTENT,
    Contender,
)
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.figures import percentile
from benchmarks.http_echo_server import HttpEchoServer
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "steps"
_TABLE = "a call of 64 B, one core"
_WHOLE = "the whole call"
_SIZE = 64
_CALLS = 400
_ROUNDS = 15


class _Step(NamedTuple):
    title: str
    contender: Contender
    """The first one that does this too."""
    http: bool = False


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
        _Step(_WIRE, RAW_SOCKET, http=True),
        _Step(_JSON, SOCKET_WITH_JSON, http=True),
        _Step(_TRANSPORT, TRANSPORT, http=True),
        _Step(_MANAGER, OVER_HTTP, http=True),
    ),
}
"""By what is called, the steps from the floor to it."""

_Measured = tuple[Contender, bool]
"""A contender, and whether its server is the one over HTTP."""


def measure(session: Session) -> None:
    session.say("steps: what each part of a call adds")
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    with ExitStack() as stack:
        drivers = _drivers(session, stack)
        # The first round warms up, and is thrown away.
        for number in range(session.effort.rounds(_ROUNDS, 3) + 1):
            medians: dict[_Measured, float] = {}
            for measured, driver in drivers.items():
                if session.able(SECTION, [driver.contender]):
                    with session.turn(SECTION, driver.contender):
                        latencies, _ = driver.call(_SIZE, calls)
                        medians[measured] = percentile(latencies, 0.50)
            if number > 0:
                _add(session, medians)


def _drivers(session: Session, stack: ExitStack) -> dict[_Measured, DriverProcess]:
    """All of them, bound to one core with their servers."""
    server = stack.enter_context(HttpEchoServer())
    steps = [step for path in _PATHS.values() for step in path]
    drivers: dict[_Measured, DriverProcess] = {}
    for http, where in ((False, None), (True, [server.url])):
        among = list(dict.fromkeys(step.contender for step in steps if step.http == http))
        for driver in stack.enter_context(session.drivers(SECTION, servers=1, among=among, server=where)):
            drivers[driver.contender, http] = driver
    if CORES:
        server.place(CORES[0])
        for driver in drivers.values():
            driver.place(CORES[0], CORES[0])
    return drivers


def _add(session: Session, medians: dict[_Measured, float]) -> None:
    """The steps of one round. A path of which a contender is missing is left out."""
    paths = {
        called.key: path
        for called, path in _PATHS.items()
        if all((step.contender, step.http) in medians for step in path)
    }
    titles = dict.fromkeys(step.title for path in _PATHS.values() for step in path)
    for title in [*titles, _WHOLE]:
        row = session.run.row(SECTION, _TABLE, title, "seconds")
        for called, path in paths.items():
            totals = [medians[step.contender, step.http] for step in path]
            for step, total, before in zip(path, totals, [0.0, *totals], strict=False):
                if step.title == title:
                    row.values.setdefault(called, []).append(total - before)
            if title == _WHOLE:
                row.values.setdefault(called, []).append(totals[-1])
