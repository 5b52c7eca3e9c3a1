"""What gateways in front of a server over stdio take, in both eras: calls, crowds of sessions, start and memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import psutil

from benchmarks.contenders import FLOOR, PIPE_AND_HTTP, RAW_HTTP, Contender
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.echo_server import build
from benchmarks.figures import percentile
from benchmarks.measures import gateway_fleet, gateway_recovery, gateway_runaway
from benchmarks.session import Session

__all__ = ["HANDSHAKE", "STATELESS", "measure"]

HANDSHAKE, STATELESS = "gateway", "gateway, stateless clients"
"""The sections."""

_CROWDS = (1, 32, 128)
_CROWD_ROUNDS, _SECONDS = 3, 0.5
_PROCESSOR_AT = 32
"""Sessions with which the processor time of a call is looked at."""

_START_ROUNDS = 3


class _Case(NamedTuple):
    title: str
    size: int
    calls: int
    """In a round of a full run."""
    rounds: int
    together: bool = False
    """Whether all processes are bound to one core."""


_CASES = (
    _Case("64 B", 64, calls=300, rounds=10),
    _Case("64 B, one core", 64, calls=200, rounds=6, together=True),
    _Case("64 KiB", 64 * 1024, calls=60, rounds=6),
)


def measure(session: Session) -> None:
    for section in (HANDSHAKE, STATELESS):
        _measure_calls(session, section)
        _measure_starts(session, section)
    gateway_runaway.measure(session)
    gateway_recovery.measure(session)
    gateway_fleet.measure(session)


def _measure_calls(session: Session, section: str) -> None:
    with _drivers(session, section) as (pipe, drivers):
        for case in _CASES:
            _measure_case(session, section, case, pipe, drivers)
        for driver in (pipe, *drivers):
            driver.place(None, None)
        for sessions in _CROWDS:
            _measure_crowd(session, section, sessions, drivers)


@contextmanager
def _drivers(session: Session, section: str) -> Iterator[tuple[DriverProcess, list[DriverProcess]]]:
    """The raw pipe, and all gateways and the raw HTTP at once, connected."""
    with ExitStack() as stack:
        ready = []
        for contender in session.able(section, session.gateways):
            with session.turn(section, contender):
                driver = stack.enter_context(_driver(session, section, contender))
                driver.connect(1)
                ready.append(driver)
        pipe = stack.enter_context(DriverProcess(FLOOR, session.server))
        pipe.load()
        pipe.connect(1)
        yield pipe, ready


def _driver(session: Session, section: str, contender: Contender) -> DriverProcess:
    server = [str(build("http_echo_server"))] if contender.key == RAW_HTTP.key else session.server
    era = ("--stateless",) if section == STATELESS else ()
    return DriverProcess(contender._replace(arguments=(*contender.arguments, *era)), server)


def _measure_case(
    session: Session, section: str, case: _Case, pipe: DriverProcess, drivers: list[DriverProcess]
) -> None:
    calls = session.effort.amount(case.calls, case.calls // 4)
    session.say(f"{section}, {case.title}: {calls} calls a round")
    if CORES:
        for driver in (pipe, *drivers):
            driver.place(*((CORES[0], CORES[0]) if case.together else (None, None)))
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(case.rounds, 3) + 1):
        in_pipe, _ = pipe.call(case.size, calls)
        for driver in session.left(section, drivers):
            with session.turn(section, driver.contender):
                latencies, _ = driver.call(case.size, calls)
                if number > 0:
                    _add(session, section, case, driver.contender, latencies, in_pipe)


def _add(
    session: Session, section: str, case: _Case, contender: Contender, latencies: list[float], in_pipe: list[float]
) -> None:
    for rank in (50, 99):
        figure = percentile(latencies, rank / 100)
        key = contender.key
        if key == RAW_HTTP.key:
            # What a gateway takes that costs nothing: an exchange over HTTP, and one through the pipe.
            key, figure = PIPE_AND_HTTP.key, figure + percentile(in_pipe, rank / 100)
        row = session.run.row(section, case.title, f"p{rank}", "seconds")
        row.values.setdefault(key, []).append(figure)


def _measure_crowd(session: Session, section: str, sessions: int, drivers: list[DriverProcess]) -> None:
    column = f"{sessions} session{'s' * (sessions > 1)}"
    session.say(f"{section}, {column}")
    for _ in range(session.effort.rounds(_CROWD_ROUNDS, 2)):
        for driver in session.left(section, drivers):
            with session.turn(section, driver.contender):
                key = driver.contender.key
                driver.open_sessions(sessions)
                before = _processor_time(driver)
                rate = driver.crowd(sessions, 1, _SECONDS)
                each = (_processor_time(driver) - before) / (rate * _SECONDS)
                row = session.run.row(section, "calls per second", column, "calls/s", more_is_better=True)
                row.values.setdefault(key, []).append(rate)
                if sessions == _PROCESSOR_AT and key != RAW_HTTP.key:
                    row = session.run.row(section, "processor time of a call", column, "seconds")
                    row.values.setdefault(key, []).append(each)


def _processor_time(driver: DriverProcess) -> float:
    """Seconds of the gateway's processes, without the client's and the server's."""
    times = [process.cpu_times() for process in driver.helpers()]
    return sum(each.user + each.system for each in times)


def _measure_starts(session: Session, section: str) -> None:
    session.say(f"{section}, start and memory")
    gateways = [each for each in session.gateways if each.key != RAW_HTTP.key]
    for _ in range(session.effort.rounds(_START_ROUNDS, 1)):
        for contender in session.able(section, gateways):
            with session.turn(section, contender), _driver(session, section, contender) as driver:
                seconds = driver.connect(1)
                row = session.run.row(section, "start", "first good answer", "seconds")
                row.values.setdefault(contender.key, []).append(seconds)
                for sessions in _CROWDS:
                    driver.crowd(sessions, 1, _SECONDS)
                    column = f"{sessions} session{'s' * (sessions > 1)}"
                    row = session.run.row(section, "memory", column, "bytes")
                    row.values.setdefault(contender.key, []).append(_memory(driver.helpers()))


def _memory(processes: list[psutil.Process]) -> int:
    """Resident, of all of them: pages that they share count in each."""
    return sum(process.memory_info().rss for process in processes)
