"""Memory, threads and descriptors of a client with one, fifty and two hundred servers; how long these take to end."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import psutil

from benchmarks.contenders import FLOOR, GAIA
from benchmarks.driver_process import DriverProcess
from benchmarks.results import Unit
from benchmarks.session import Session, numbered

SECTION = "footprint"
FLEET = "start and end"
_ROUNDS = {1: 3, 50: 2, 200: 1}
"""By the number of servers. The figures hardly differ from round to round."""

_FURTHER_ENDS = 2
"""Rounds in which only gaia-mcp and the floor start and end many servers, because some peers take a minute for it."""

_SETTLED_SECONDS = 1.5
_POLL_SECONDS = 0.05

_SIZES = {"64 B": 64, "1 MiB": 1024 * 1024, "8 MiB": 8 * 1024 * 1024}
_CALLS = 3


def measure(session: Session) -> None:
    for servers, rounds in _ROUNDS.items():
        session.say(f"footprint with {numbered(servers, 'server')}")
        for _ in range(session.effort.rounds(rounds, 1)):
            for contender in session.able(SECTION):
                with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
                    driver.load()
                    started = driver.connect(servers)
                    driver.call(64, 1)
                    _let_threads_end(driver.process)
                    _add(session, driver, servers)
                    if servers == max(_ROUNDS):
                        _end(session, driver, servers, started)
    _measure_ends(session, max(_ROUNDS))
    _add_growth(session)
    _measure_sizes(session)


def _measure_ends(session: Session, servers: int) -> None:
    session.say(f"start and end of {numbered(servers, 'server')}")
    for _ in range(session.effort.rounds(_FURTHER_ENDS, 0)):
        for contender in (each for each in session.able(FLEET) if each in (FLOOR, GAIA)):
            with session.turn(FLEET, contender), DriverProcess(contender, session.server) as driver:
                driver.load()
                _end(session, driver, servers, driver.connect(servers))


def own_share(process: psutil.Process) -> int:
    """Bytes, where pages that several processes share count in parts: processes forked from one share most of them."""
    return int(getattr(process.memory_full_info(), "pss", process.memory_info().rss))


def _let_threads_end(process: psutil.Process) -> None:
    """Wait for threads that only the start needs: until none has ended for a while."""
    seen, since = process.num_threads(), time.monotonic()
    while time.monotonic() - since < _SETTLED_SECONDS:
        time.sleep(_POLL_SECONDS)
        if (now := process.num_threads()) != seen:
            seen, since = now, time.monotonic()


def _add(session: Session, driver: DriverProcess, servers: int) -> None:
    process = driver.process
    figures = {
        "memory": process.memory_info().rss,
        "memory of its helpers": sum(map(own_share, driver.helpers())),
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }
    for what, figure in figures.items():
        unit: Unit = "bytes" if "memory" in what else "count"
        session.add(driver.contender, SECTION, what, numbered(servers, "server"), figure, unit)


def _end(session: Session, driver: DriverProcess, servers: int, started: float) -> None:
    """What the servers take to end, if that works; `started` is what they took to start."""
    with session.turn(FLEET, driver.contender):
        for column, seconds in (("start", started), ("end", driver.disconnect())):
            session.add(driver.contender, FLEET, numbered(servers, "server"), column, seconds, "seconds")


def _add_growth(session: Session) -> None:
    """What one server more costs, in bytes."""
    few, many = min(_ROUNDS), max(_ROUNDS)
    least = session.run.find(f"{SECTION}: memory: {numbered(few, 'server')}")
    most = session.run.find(f"{SECTION}: memory: {numbered(many, 'server')}")
    if least is None or most is None:
        return
    row = session.run.row(SECTION, "memory of one server more", f"from {few} to {many} servers", "bytes")
    for contender in least.values.keys() & most.values.keys():
        more = statistics.median(most.values[contender]) - statistics.median(least.values[contender])
        row.values[contender] = [more / (many - few)]


def _measure_sizes(session: Session) -> None:
    session.say("footprint with calls of several sizes")
    for contender in session.able(SECTION):
        with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
            driver.load()
            driver.connect(1)
            # The largest come last: a peak stays.
            for title, size in _SIZES.items():
                driver.call(size, _CALLS)
                table = "peak memory, by the size of a call"
                session.add(contender, SECTION, table, title, _peak(driver.process), "bytes")


def _peak(process: psutil.Process) -> int:
    """The largest resident set so far, in bytes; where the system does not say it, that of now."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)
