"""A benchmark run in progress: the contenders' turns and rounds, their failures, and progress messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import psutil

from benchmarks.contenders import FRAMEWORKS, GATEWAYS, Contender
from benchmarks.driver_process import CORES, DriverFailed, DriverProcess
from benchmarks.environments import CannotInstall
from benchmarks.figures import percentile
from benchmarks.results import Row, Run, Unit


class Effort:
    """How much is measured: `quick` makes fewer and shorter rounds, `rounds` sets their number."""

    def __init__(self, *, quick: bool = False, rounds: int | None = None) -> None:
        self._quick = quick
        self._rounds = rounds

    def rounds(self, full: int, quick: int) -> int:
        return self._rounds or (quick if self._quick else full)

    def amount(self, full: int, quick: int) -> int:
        """Calls in one round."""
        return quick if self._quick else full


class Case(NamedTuple):
    """Calls of one size, one after the other."""

    title: str
    size: int
    calls: int
    """In a round of a full run."""
    rounds: int
    together: bool = False
    """Whether all processes are bound to one core."""


class Calls(NamedTuple):
    """What the calls of one contender took in one round, in seconds."""

    latencies: list[float]
    processor: float
    """Processor time of a call."""

    def figures(self, *ranks: int) -> dict[str, float]:
        """Percentiles, by their names such as ``p50``."""
        return {f"p{rank}": percentile(self.latencies, rank / 100) for rank in ranks}


class Session:
    """What all measures share. `turn` is how a contender is asked to do something that may fail."""

    def __init__(self, run: Run, contenders: list[Contender], server: list[str], effort: Effort) -> None:
        self.run = run
        self.effort = effort
        self.server = server
        apart = {*FRAMEWORKS, *GATEWAYS}
        self._contenders = [each for each in contenders if each not in apart]
        self.frameworks = [each for each in contenders if each in FRAMEWORKS]
        self.gateways = [each for each in contenders if each in GATEWAYS]
        self._began = time.monotonic()

    def able(self, section: str, among: Sequence[Contender] | None = None) -> list[Contender]:
        """The contenders that have not failed in this section so far, of all or of those that are given."""
        failed = self.run.failures.get(section, {})
        return [each for each in (self._contenders if among is None else among) if each.key not in failed]

    def left(self, section: str, drivers: Sequence[DriverProcess]) -> list[DriverProcess]:
        """The drivers of contenders that have not failed in this section so far."""
        failed = self.run.failures.get(section, {})
        return [driver for driver in drivers if driver.contender.key not in failed]

    @contextmanager
    def turn(self, section: str, contender: Contender) -> Iterator[None]:
        """A turn of a contender: if it fails, it is out of the section, and the reason is kept."""
        try:
            yield
        except (DriverFailed, CannotInstall, psutil.Error, OSError) as error:
            self.fail(section, contender, str(error) or type(error).__name__)

    def fail(self, section: str, contender: Contender, why: str) -> None:
        """Take a contender out of a section."""
        self.run.failures.setdefault(section, {})[contender.key] = why
        self.say(f"{contender.title} is out: {why}")

    @contextmanager
    def drivers(
        self,
        section: str,
        servers: int,
        among: Sequence[Contender] | None = None,
        server: Sequence[str] | None = None,
    ) -> Iterator[list[DriverProcess]]:
        """All contenders at once, or those that are given, each loaded and connected to servers of its own.

        `server` is the URL of one over HTTP, which all of them share.
        """
        with ExitStack() as stack:
            ready: list[DriverProcess] = []
            for contender in self.able(section) if among is None else among:
                with self.turn(section, contender):
                    driver = stack.enter_context(DriverProcess(contender, list(server or self.server)))
                    driver.load()
                    driver.connect(servers)
                    ready.append(driver)
            yield ready

    def rounds_of_calls(
        self, section: str, drivers: Sequence[DriverProcess], case: Case
    ) -> Iterator[dict[Contender, Calls]]:
        """Round by round, what the calls of each contender took. A first round warms up, and is thrown away."""
        calls = self.effort.amount(case.calls, max(5, case.calls // 4))
        self.say(f"{section}, {case.title}: {calls} calls a round")
        for number in range(self.effort.rounds(case.rounds, 3) + 1):
            taken = {}
            for driver in self.left(section, drivers):
                with self.turn(section, driver.contender):
                    latencies, processor = driver.call(case.size, calls)
                    taken[driver.contender] = Calls(latencies, processor / calls)
            if number > 0:
                yield taken

    def measure_crowd(
        self, row: Row, drivers: Sequence[DriverProcess], callers: int, servers: int, seconds: float, rounds: int
    ) -> None:
        """Add to `row` how many calls per second are answered when so many callers ask at once."""
        self.say(row.key)
        for _ in range(self.effort.rounds(rounds, 2)):
            for driver in self.left(row.section, drivers):
                with self.turn(row.section, driver.contender):
                    row.add(driver.contender, driver.crowd(callers, servers, seconds))

    def add(self, contender: Contender, section: str, table: str, column: str, figure: float, unit: Unit) -> None:
        self.run.row(section, table, column, unit).add(contender, figure)

    def say(self, what: str) -> None:
        """Progress, on standard error."""
        print(f"[{time.monotonic() - self._began:5.0f} s] {what}", file=sys.stderr, flush=True)


def place(drivers: Sequence[DriverProcess], *, together: bool) -> None:
    """Bind clients to one core, and their servers to the same or to another one."""
    if CORES:
        for driver in drivers:
            driver.place(CORES[0], CORES[0 if together else -1])


def numbered(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count > 1)}"
