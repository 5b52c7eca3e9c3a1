"""What a server on a Ray cluster takes: its calls, its answers by size and its start."""

from __future__ import annotations

from benchmarks.contenders import (
    ACTOR_AND_LOCAL,
    ACTOR_THEN_LOCAL,
    BARE_ACTOR,
    LOCAL_BESIDE,
    OBJECT_STORE,
    PLACED,
)
from benchmarks.driver_process import DriverProcess
from benchmarks.figures import percentile
from benchmarks.session import Session

SECTION = "cluster"

_CALLS, _ROUNDS = 300, 10
_WAYS = {"local": LOCAL_BESIDE, "actor": BARE_ACTOR, "both": ACTOR_THEN_LOCAL, "placed": PLACED}

_RESULTS = (("64 B", 64, 200), ("64 KiB", 64 * 1024, 100), ("1 MiB", 1 << 20, 20), ("16 MiB", 1 << 24, 5))
"""Their sizes, and how many of them a round of a full run has."""
_RESULT_WAYS = {"local": LOCAL_BESIDE, "actor": BARE_ACTOR, "store": OBJECT_STORE, "placed": PLACED}
_RESULT_ROUNDS = 6

_START_ROUNDS = 7


def measure(session: Session) -> None:
    for contender in session.able(SECTION, session.clusters):
        with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
            session.say("cluster: three nodes")
            driver.ask(do="begin", argv=session.server)
            _measure_calls(session, driver)
            _measure_results(session, driver)
            _measure_starts(session, driver)


def _measure_calls(session: Session, driver: DriverProcess) -> None:
    calls = session.effort.amount(_CALLS, _CALLS // 4)
    session.say(f"cluster: {calls} calls a round")
    # The first round warms up, and is thrown away.
    for number in range(session.effort.rounds(_ROUNDS, 3) + 1):
        latencies = {way: driver.ask(do="call", way=way, size=64, count=calls)["latencies"] for way in _WAYS}
        for rank in (50, 99):
            figures = {way: percentile(of_way, rank / 100) for way, of_way in latencies.items()}
            if number > 0:
                for way, contender in _WAYS.items():
                    session.add(contender, SECTION, "64 B", f"p{rank}", figures[way], "seconds")
                session.add(
                    ACTOR_AND_LOCAL, SECTION, "64 B", f"p{rank}", figures["actor"] + figures["local"], "seconds"
                )


def _measure_results(session: Session, driver: DriverProcess) -> None:
    for title, size, calls in _RESULTS:
        session.say(f"cluster: results of {title}")
        count = session.effort.amount(calls, max(2, calls // 4))
        for number in range(session.effort.rounds(_RESULT_ROUNDS, 2) + 1):
            for way, contender in _RESULT_WAYS.items():
                latencies = driver.ask(do="fetch", way=way, size=size, count=count)["latencies"]
                if number > 0:
                    session.add(contender, SECTION, "results, p50", title, percentile(latencies, 0.5), "seconds")


def _measure_starts(session: Session, driver: DriverProcess) -> None:
    session.say("cluster: cold start")
    for _ in range(session.effort.rounds(_START_ROUNDS, 2)):
        for part, seconds in driver.ask(do="start")["seconds"].items():
            session.add(PLACED, SECTION, "cold start", part, seconds, "seconds")
