"""What a placed server takes: its calls beside local ones and a bare actor's, its host, its replicas, its recovery."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks.contenders import (
    BARE_ACTOR,
    FLOOR,
    GAIA,
    LOCAL_BESIDE,
    PLACED,
    PLACED_BY_RAY,
    PLACED_REPLICAS,
    SLEEP_ALONE,
)
from benchmarks.driver_process import DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Case, Session, numbered

SECTION = "placement"

_WAYS = {"local": LOCAL_BESIDE, "process": PLACED, "ray": PLACED_BY_RAY, "actor": BARE_ACTOR}
_SIZES = (Case("64 B", 64, 300, 10), Case("1 MiB", 1 << 20, 20, 8))

_CALLERS, _CROWD_SECONDS, _CROWD_ROUNDS = 16, 2.0, 5

_REPLICAS = (1, 2, 3, 6)
_REPLICA_SECONDS, _SLEEP = 5.0, 0.1

_PROGRAMS, _PROGRESS_CALLS, _PROGRESS_SECONDS = 10, 40, 0.05
_SLEEPER = [sys.executable, "-m", "gaia.mcp.demo_server"]

_KILL_ROUNDS, _LOSS_ROUNDS = 5, 5
_CALM_SECONDS = 12.0
"""Until a server that was lost is restarted without a pause again, see `RestartPolicy.stable_after`."""


def measure(session: Session) -> None:
    if GAIA not in session.able(SECTION):
        return
    with session.turn(SECTION, PLACED), DriverProcess(PLACED, session.server) as driver:
        session.say("placement: start")
        ray = driver.ask(do="begin", argv=session.server)["ray"]
        ways = ["local", "process", *(["ray", "actor"] if ray else [])]
        if ray:
            session.run.versions[BARE_ACTOR.key] = f"Ray {ray}"
        else:
            session.fail(SECTION, PLACED_BY_RAY, "Ray is not installed")
        for case in _SIZES:
            _measure_calls(session, driver, ways, case)
            if case is _SIZES[0]:
                _measure_crowd(session, driver, ways)
            _measure_hosts(session, driver, case.title)
        _measure_kills(session, driver)
        if ray:
            _measure_losses(session, driver)
    _measure_sharing(session)
    _measure_replicas(session)


def _measure_calls(session: Session, driver: DriverProcess, ways: list[str], case: Case) -> None:
    count = session.effort.amount(case.calls, max(5, case.calls // 4))
    session.say(f"placement, {case.title}: {count} calls a round")
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(case.rounds, 3) + 1):
        for way in ways:
            latencies = driver.ask(do="call", way=way, size=case.size, count=count)["latencies"]
            for rank in (50, 99) if number > 0 else ():
                figure = percentile(latencies, rank / 100)
                session.add(_WAYS[way], SECTION, case.title, f"p{rank}", figure, "seconds")


def _measure_crowd(session: Session, driver: DriverProcess, ways: list[str]) -> None:
    session.say(f"placement: {_CALLERS} callers")
    column = numbered(_CALLERS, "caller")
    row = session.run.row(SECTION, "calls per second", column, "calls/s", more_is_better=True)
    for _ in range(session.effort.rounds(_CROWD_ROUNDS, 2)):
        for way in ways:
            answer = driver.ask(do="crowd", way=way, callers=_CALLERS, seconds=_CROWD_SECONDS)
            row.add(_WAYS[way], answer["calls"] / answer["seconds"])
            table = "processor time of a call, client and host or actor"
            session.add(_WAYS[way], SECTION, table, column, answer["cpu"] / answer["calls"], "seconds")


def _measure_hosts(session: Session, driver: DriverProcess, when: str) -> None:
    for way, held in driver.ask(do="hosts").items():
        table = "memory of a host"
        session.add(_WAYS[way], SECTION, table, f"resident, after calls of {when}", held["rss"], "bytes")
        session.add(_WAYS[way], SECTION, table, f"its own, after calls of {when}", held["uss"], "bytes")
        session.add(_WAYS[way], SECTION, "threads of a host", f"after calls of {when}", held["threads"], "count")


def _measure_kills(session: Session, driver: DriverProcess) -> None:
    for what, words, ways in (("server", "the server", ("local", "process")), ("host", "its host", ("process",))):
        session.say(f"placement: kill -9 of {words}")
        for _ in range(session.effort.rounds(_KILL_ROUNDS, 1)):
            time.sleep(_CALM_SECONDS)
            for way in ways:
                seconds = driver.ask(do="kill", way=way, what=what)["seconds"]
                session.add(_WAYS[way], SECTION, "kill -9, next good answer", words, seconds, "seconds")
            if FLOOR in session.able(SECTION):
                with DriverProcess(FLOOR, session.server) as floor:
                    floor.load()
                    floor.connect(1)
                    floor.call(64, 1)
                    session.add(FLOOR, SECTION, "kill -9, next good answer", words, floor.recover(3.0), "seconds")


def _measure_losses(session: Session, driver: DriverProcess) -> None:
    session.say("placement: a node is lost")
    for _ in range(session.effort.rounds(_LOSS_ROUNDS, 1)):
        for way, seconds in driver.ask(do="lose")["seconds"].items():
            session.add(_WAYS[way], SECTION, "a node is lost", "next good answer", seconds, "seconds")


def _measure_sharing(session: Session) -> None:
    session.say(f"placement: {_PROGRAMS} programs share a server")
    count = session.effort.amount(_PROGRESS_CALLS, _PROGRESS_CALLS // 4)
    with session.turn(SECTION, PLACED), ExitStack() as stack:
        drivers = [stack.enter_context(DriverProcess(PLACED, _SLEEPER)) for _ in range(_PROGRAMS)]
        for driver in drivers:
            driver.ask(do="share", argv=_SLEEPER, name=f"benchmark-{os.getpid()}")
        pool = stack.enter_context(ThreadPoolExecutor(_PROGRAMS))
        for number in range(session.effort.rounds(3, 1) + 1):
            asked = [pool.submit(each.ask, do="progress", count=count, seconds=_PROGRESS_SECONDS) for each in drivers]
            latencies = [latency for one in asked for latency in one.result()["latencies"]]
            for rank in (50, 99) if number > 0 else ():
                figure = percentile(latencies, rank / 100)
                table = "ten programs share a server, calls of 50 ms with progress"
                session.add(PLACED, SECTION, table, f"p{rank}", figure, "seconds")


def _measure_replicas(session: Session) -> None:
    table = "calls per second of a tool that sleeps 100 ms"
    with session.turn(SECTION, PLACED_REPLICAS), DriverProcess(PLACED_REPLICAS, session.server) as driver:
        for replicas in _REPLICAS:
            column = numbered(replicas, "replica")
            session.say(f"placement: {column}")
            row = session.run.row(SECTION, table, column, "calls/s", more_is_better=True)
            for _ in range(session.effort.rounds(2, 1)):
                answer = driver.ask(
                    do="crowd",
                    replicas=replicas,
                    seconds=_REPLICA_SECONDS,
                    tool="sleep",
                    arguments={"seconds": _SLEEP},
                    placement={"engine": "process"},
                )
                row.add(PLACED_REPLICAS, answer["calls"] / answer["seconds"])
                row.add(SLEEP_ALONE, replicas / _SLEEP)
