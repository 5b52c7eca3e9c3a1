"""Memory, threads and descriptors of a client with one, fifty and two hundred servers."""

from __future__ import annotations

import psutil

from benchmarks.driver_process import DriverProcess
from benchmarks.session import Session

__all__ = ["measure"]

SECTION = "footprint"
_ROUNDS = {1: 3, 50: 2, 200: 1}
"""By the number of servers. The figures hardly differ from round to round."""


def measure(session: Session) -> None:
    for servers, rounds in _ROUNDS.items():
        session.say(f"footprint with {servers} server{'s' * (servers > 1)}")
        for _ in range(session.effort.rounds(rounds, 1)):
            for contender in session.able(SECTION):
                with session.turn(SECTION, contender), DriverProcess(contender, session.server) as driver:
                    driver.load()
                    driver.connect(servers)
                    driver.call(64, 1)
                    _add(session, driver, servers)


def _own_share(process: psutil.Process) -> int:
    """Bytes, where pages that several processes share count in parts: processes forked from one share most of them."""
    return int(getattr(process.memory_full_info(), "pss", process.memory_info().rss))


def _add(session: Session, driver: DriverProcess, servers: int) -> None:
    column = f"{servers} server{'s' * (servers > 1)}"
    process = driver.process
    figures = {
        "memory": process.memory_info().rss,
        "memory of its helpers": sum(map(_own_share, driver.helpers())),
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }
    for what, figure in figures.items():
        row = session.run.row(SECTION, what, column, "bytes" if "memory" in what else "count")
        row.values.setdefault(driver.contender.key, []).append(figure)
