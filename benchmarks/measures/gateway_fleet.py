"""Memory and processes of many agents with several servers each: one gateway for all, or a client in each agent."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import psutil

from benchmarks.contenders import GATEWAY, SEPARATE_GAIA, SEPARATE_SDK, Contender
from benchmarks.driver_process import DriverProcess
from benchmarks.measures.footprint import own_share
from benchmarks.session import Session
from gaia.mcp import demo_server

__all__ = ["FLEET", "measure"]

FLEET = "gateway, many agents"
_AGENTS, _SERVERS = 50, 8
_QUICK_AGENTS = 5

_SERVER = [sys.executable, "-I", str(demo_server.__file__)]
"""A small server in Python: one in C would take next to nothing."""


def measure(session: Session) -> None:
    agents = session.effort.amount(_AGENTS, _QUICK_AGENTS)
    session.say(f"gateway: {agents} agents with {_SERVERS} servers each")
    if GATEWAY not in session.able(FLEET, session.gateways):
        return
    with session.turn(FLEET, GATEWAY), DriverProcess(GATEWAY, _SERVER) as driver:
        driver.connect(_SERVERS)
        driver.open_sessions(agents)
        driver.call(64, 1)
        _add(session, GATEWAY, agents, [*driver.helpers(), *driver.servers()])
    for contender in session.able(FLEET, [SEPARATE_GAIA, SEPARATE_SDK]):
        with session.turn(FLEET, contender), ExitStack() as stack:
            drivers = [stack.enter_context(DriverProcess(contender, _SERVER)) for _ in range(agents)]
            for driver in drivers:
                driver.load()
                driver.connect(_SERVERS)
                driver.call(64, 1)
            _add(session, contender, agents, [each for one in drivers for each in (*one.helpers(), *one.servers())])


def _add(session: Session, contender: Contender, agents: int, processes: list[psutil.Process]) -> None:
    """What there is besides the agents' own processes."""
    table = f"{agents} agents with {_SERVERS} servers each"
    figures = {"memory": sum(map(own_share, processes)), "processes": len(processes)}
    for what, figure in figures.items():
        row = session.run.row(FLEET, f"{what} for {table}", what, "bytes" if what == "memory" else "count")
        row.values.setdefault(contender.key, []).append(figure)
