"""What gateways in front of a server over stdio take, and what their clients notice of one another and of a kill.

Calls, crowds of sessions, start and memory in both eras; a runaway client; a server that is killed, while it is idle or
has calls; and many agents with several servers each, through one gateway or with a client in each agent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.contenders import (
    FLOOR,
    GATEWAY,
    GATEWAY_GUARDED,
    PIPE_AND_HTTP,
    RAW_HTTP,
    SEPARATE_GAIA,
    SEPARATE_SDK,
    Contender,
)
from benchmarks.driver_process import CORES, DriverProcess
from benchmarks.echo_server import build
from benchmarks.figures import percentile
from benchmarks.measures.footprint import own_share
from benchmarks.results import Unit
from benchmarks.session import Case, Session, numbered
from gaia.mcp import demo_server

HANDSHAKE, STATELESS = "gateway", "gateway, stateless clients"
RUNAWAY = "gateway, runaway client"
IDLE, UNDER_WAY = "gateway, server killed", "gateway, server killed with calls"
FLEET = "gateway, many agents"
"""The sections."""

_CROWDS = (1, 32, 128)
_CROWD_ROUNDS, _SECONDS = 3, 0.5
_PROCESSOR_AT = 32
"""Sessions with which the processor time of a call is looked at."""

_START_ROUNDS = 3


_CASES = (
    Case("64 B", 64, calls=300, rounds=10),
    Case("64 B, one core", 64, calls=200, rounds=6, together=True),
    Case("64 KiB", 64 * 1024, calls=60, rounds=6),
)

_RUNAWAY_TABLE = "calls of another client"
_RUNAWAY_COLUMNS = ("p50 alone", "p99 alone", "p50 beside it", "p99 beside it")
_RUNAWAY_ROUNDS, _RUNAWAY_CALLS, _RUNAWAY_SESSIONS = 7, 1_000, 32

_LOST_CALLS, _LOSS_ROUNDS, _GIVE_UP_SECONDS = 32, 5, 5.0

_AGENTS, _QUICK_AGENTS, _SERVERS = 50, 5, 8
_FLEET_SERVER = [sys.executable, "-I", str(demo_server.__file__)]
"""A small server in Python: one in C would take next to nothing."""


def measure(session: Session) -> None:
    for section in (HANDSHAKE, STATELESS):
        _measure_calls(session, section)
        _measure_starts(session, section)
    measure_runaway_client(session)
    measure_killed_servers(session)
    measure_many_agents(session)


def _measure_calls(session: Session, section: str) -> None:
    with _drivers(session, section) as (pipe, drivers):
        for case in _CASES:
            _measure_case(session, section, case, [pipe, *drivers])
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


def _measure_case(session: Session, section: str, case: Case, drivers: list[DriverProcess]) -> None:
    if CORES:
        for driver in drivers:
            driver.place(*((CORES[0], CORES[0]) if case.together else (None, None)))
    for taken in session.rounds_of_calls(section, drivers, case):
        pipe = taken.pop(FLOOR, None)
        in_pipe = None if pipe is None else pipe.figures(50, 99)
        for contender, calls in taken.items():
            for column, figure in calls.figures(50, 99).items():
                if contender.key == RAW_HTTP.key:
                    # What a gateway takes that costs nothing: an exchange over HTTP, and one through the pipe.
                    if in_pipe is not None:
                        session.add(PIPE_AND_HTTP, section, case.title, column, figure + in_pipe[column], "seconds")
                else:
                    session.add(contender, section, case.title, column, figure, "seconds")


def _measure_crowd(session: Session, section: str, sessions: int, drivers: list[DriverProcess]) -> None:
    column = numbered(sessions, "session")
    session.say(f"{section}, {column}")
    for _ in range(session.effort.rounds(_CROWD_ROUNDS, 2)):
        for driver in session.left(section, drivers):
            with session.turn(section, driver.contender):
                driver.open_sessions(sessions)
                before = _processor_time(driver)
                rate = driver.crowd(sessions, 1, _SECONDS)
                each = (_processor_time(driver) - before) / (rate * _SECONDS)
                row = session.run.row(section, "calls per second", column, "calls/s", more_is_better=True)
                row.add(driver.contender, rate)
                if sessions == _PROCESSOR_AT and driver.contender.key != RAW_HTTP.key:
                    session.add(driver.contender, section, "processor time of a call", column, each, "seconds")


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
                session.add(contender, section, "start", "first good answer", driver.connect(1), "seconds")
                for sessions in _CROWDS:
                    driver.crowd(sessions, 1, _SECONDS)
                    # Pages that processes share count in each.
                    resident = sum(process.memory_info().rss for process in driver.helpers())
                    session.add(contender, section, "memory", numbered(sessions, "session"), resident, "bytes")


def measure_runaway_client(session: Session) -> None:
    for contender in session.able(RUNAWAY, [each for each in session.gateways if each == GATEWAY_GUARDED]):
        calls = session.effort.amount(_RUNAWAY_CALLS, _RUNAWAY_CALLS // 5)
        session.say(f"gateway: a runaway client beside {calls} calls a round")
        with session.turn(RUNAWAY, contender), DriverProcess(contender, session.server) as driver:
            driver.connect(1)
            for _ in range(session.effort.rounds(_RUNAWAY_ROUNDS, 2)):
                figures = [
                    percentile(latencies, rank)
                    for latencies in driver.call_beside(_RUNAWAY_SESSIONS, calls)
                    for rank in (0.5, 0.99)
                ]
                for column, figure in zip(_RUNAWAY_COLUMNS, figures, strict=True):
                    session.add(contender, RUNAWAY, _RUNAWAY_TABLE, column, figure, "seconds")


def measure_killed_servers(session: Session) -> None:
    gateways = [each for each in session.gateways if each.key != RAW_HTTP.key and len(each.arguments) == 1]
    for _ in range(session.effort.rounds(_LOSS_ROUNDS, 1)):
        session.say("gateway: a server is killed")
        # The floor is what the server itself takes to start.
        for contender in (FLOOR, *session.able(IDLE, gateways)):
            with session.turn(IDLE, contender), DriverProcess(contender, session.server) as driver:
                driver.load()
                driver.connect(1)
                driver.call(64, 3)
                column = "next good answer in the same session"
                session.add(contender, IDLE, "while it is idle", column, driver.recover(_GIVE_UP_SECONDS), "seconds")
        for contender in session.able(UNDER_WAY, gateways):
            _measure_loss(session, contender)


def _measure_loss(session: Session, contender: Contender) -> None:
    # Calls of its tool must not be repeated, so that each client has to be told.
    server = [*session.server, "0", "--unmarked"]
    with session.turn(UNDER_WAY, contender), DriverProcess(contender, server) as driver:
        driver.connect(1)
        seconds, with_delivery = driver.lose(_LOST_CALLS, _GIVE_UP_SECONDS)
        calls = f"with {_LOST_CALLS} calls under way"
        session.add(contender, UNDER_WAY, calls, "until all clients are told", seconds, "seconds")
        column = "clients told whether it may have acted"
        row = session.run.row(UNDER_WAY, f"what is said of {_LOST_CALLS} calls", column, "count", more_is_better=True)
        row.add(contender, with_delivery)


def measure_many_agents(session: Session) -> None:
    agents = session.effort.amount(_AGENTS, _QUICK_AGENTS)
    session.say(f"gateway: {agents} agents with {_SERVERS} servers each")
    if GATEWAY not in session.able(FLEET, session.gateways):
        return
    with session.turn(FLEET, GATEWAY), DriverProcess(GATEWAY, _FLEET_SERVER) as driver:
        driver.connect(_SERVERS)
        driver.open_sessions(agents)
        driver.call(64, 1)
        _add_fleet(session, GATEWAY, agents, [driver])
    for contender in session.able(FLEET, [SEPARATE_GAIA, SEPARATE_SDK]):
        with session.turn(FLEET, contender), ExitStack() as stack:
            drivers = [stack.enter_context(DriverProcess(contender, _FLEET_SERVER)) for _ in range(agents)]
            for driver in drivers:
                driver.load()
                driver.connect(_SERVERS)
                driver.call(64, 1)
            _add_fleet(session, contender, agents, drivers)


def _add_fleet(session: Session, contender: Contender, agents: int, drivers: list[DriverProcess]) -> None:
    """What there is besides the agents' own processes."""
    processes = [process for driver in drivers for process in (*driver.helpers(), *driver.servers())]
    figures: dict[str, tuple[int, Unit]] = {
        "memory": (sum(map(own_share, processes)), "bytes"),
        "processes": (len(processes), "count"),
    }
    for what, (figure, unit) in figures.items():
        table = f"{what} for {agents} agents with {_SERVERS} servers each"
        session.add(contender, FLEET, table, what, figure, unit)
