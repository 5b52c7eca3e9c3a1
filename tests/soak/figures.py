"""The figures of a soak: calls by outcome, recoveries, and what the process holds."""

from __future__ import annotations

import ctypes
import math
import os
import statistics
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import psutil

from tests.servers.state_file import RecordedCall


class Tally:
    """The calls of one server. It keeps numbers, not calls: its own memory must not hide the growth of another's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Owns everything below."""
        self.begun = 0
        self.outcomes: Counter[str] = Counter()
        self._not_sent = array("q")
        """The numbers of calls that the server has never seen, as their errors say."""

    def begin(self) -> None:
        with self._lock:
            self.begun += 1

    def end(self, number: int, outcome: str, delivery: str | None) -> None:
        with self._lock:
            self.outcomes[outcome] += 1
            if delivery == "not_sent":
                self._not_sent.append(number)

    def contradictions(self, recorded: Iterable[RecordedCall]) -> list[str]:
        """Calls that reached the server more often than they may, or although it was said that they did not."""
        writes = Counter((call.tool, int(call.arguments["text"])) for call in recorded if "text" in call.arguments)
        not_sent = set(self._not_sent)
        found = []
        for (tool, number), count in writes.items():
            if number in not_sent:
                found.append(f"call {number} of {tool} was reported as not sent, and was written {count} times")
            elif count > (2 if tool.startswith("safe_") else 1):
                found.append(f"call {number} of {tool} was written {count} times")
        return found


class Recoveries:
    """How long one server takes from each kill to the first good answer of a call made after it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Owns everything below."""
        self._killed: tuple[str, float] | None = None
        self.kills: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {}
        """By the kind of kill."""

    @property
    def is_waiting(self) -> bool:
        return self._killed is not None

    def killed(self, how: str) -> None:
        with self._lock:
            self.kills[how] += 1
            self._killed = how, time.monotonic()

    def answered(self, began: float) -> None:
        """A call that began then has got its answer just now."""
        with self._lock:
            if self._killed is not None and began >= self._killed[1]:
                how, when = self._killed
                self.seconds.setdefault(how, []).append(time.monotonic() - when)
                self._killed = None


@dataclass(frozen=True)
class Sample:
    """What this process holds at one moment."""

    seconds: float
    """Since the beginning."""
    rss: int
    """Resident memory in bytes, without what the allocator keeps for later."""
    threads: int
    descriptors: int

    @classmethod
    def now(cls, began: float) -> Sample:
        _give_back_free_memory()
        rss = psutil.Process().memory_info().rss
        return cls(time.monotonic() - began, rss, threading.active_count(), len(os.listdir("/dev/fd")))


def _give_back_free_memory() -> None:
    # glibc has an arena for every few threads, and what hundreds of threads have left in them hides a leak. Other
    # libraries have no such function, and no such need.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@dataclass
class Figures:
    """All that is reported."""

    minutes: float
    servers: int
    callers: int
    seed: int
    calls: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    """Calls that began and never ended."""
    kills: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    """Of all servers, for whatever reason."""
    recoveries: dict[str, dict[str, float]] = field(default_factory=dict)
    """By the kind of kill: count, p50, p95, p99 and max, in seconds."""
    rss_warm: int = 0
    """Median of the first third after the warm-up, in bytes; 0 after a soak that was too short."""
    rss_end: int = 0
    """Median of the last third."""
    rss_peak: int = 0
    threads: tuple[int, int] = (0, 0)
    """With all servers ready: at the beginning, at the end."""
    descriptors: tuple[int, int] = (0, 0)
    wrong: list[str] = field(default_factory=list)
    """What must not be. Empty after a soak that went well."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def percentile(ordered: Sequence[float], rank: float) -> float:
    """By nearest rank: always a value that was measured."""
    return ordered[max(0, math.ceil(rank * len(ordered)) - 1)]


def summary(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    figures = {f"p{rank}": percentile(ordered, rank / 100) for rank in (50, 95, 99)}
    return {"count": len(ordered), **figures, "max": ordered[-1]}


def rss_in_thirds(samples: Sequence[Sample]) -> tuple[int, int]:
    """The median of the first and of the last third: single samples depend on how many restarts are under way."""
    third = max(1, len(samples) // 3)
    first, last = samples[:third], samples[-third:]
    return int(statistics.median(one.rss for one in first)), int(statistics.median(one.rss for one in last))
