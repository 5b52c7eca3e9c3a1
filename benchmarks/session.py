"""A benchmark run in progress: the contenders' turns, their failures, and progress messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psutil

from benchmarks.contenders import FRAMEWORKS, GATEWAYS, Contender
from benchmarks.driver_process import DriverFailed, DriverProcess
from benchmarks.environments import CannotInstall
from benchmarks.results import Run

__all__ = ["Effort", "Session"]


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

    def say(self, what: str) -> None:
        """Progress, on standard error."""
        print(f"[{time.monotonic() - self._began:5.0f} s] {what}", file=sys.stderr, flush=True)
