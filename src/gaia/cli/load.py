"""Many calls of one tool: one after the other, and by several callers at once."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Bucket", "Calls", "histogram", "one_by_one", "together"]

_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
"""Where buckets begin within each power of ten: the preferred numbers R10, which are equally far apart by ratio."""

_MAX_BUCKETS = 20


class Calls(NamedTuple):
    """Calls that were answered, and how long all of it took. In seconds."""

    latencies: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that the given share (0 to 1) of the calls did not exceed. Nearest rank."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Bucket(NamedTuple):
    """How many of the calls took from `low` to below `high` seconds."""

    low: float
    high: float
    calls: int


def one_by_one(call: Callable[[], object], most: int, seconds: float) -> Calls:
    """Call up to `most` times, and begin no call after `seconds`; at least one. Raises whatever a call raises."""
    latencies: list[float] = []
    clock = time.perf_counter
    started = now = clock()
    while len(latencies) < most and (not latencies or now < started + seconds):
        begun = clock()
        call()
        now = clock()
        latencies.append(now - begun)
    return Calls(latencies, now - started)


def together(call: Callable[[], object], callers: int, most: int, seconds: float) -> Calls:
    """The same by `callers` threads, each with an equal share of `most`. Raises what the first failed call raised."""
    share = max(1, most // callers)
    done: list[Calls] = []
    failures: list[BaseException] = []
    ready = threading.Barrier(callers + 1)

    def run() -> None:
        ready.wait()
        try:
            done.append(one_by_one(lambda: failures or call(), share, seconds))
        except BaseException as error:  # noqa: BLE001 - raised again where it can be handled
            failures.append(error)

    threads = [threading.Thread(target=run, name=f"gaia-bench-{index}", daemon=True) for index in range(callers)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    ready.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Calls([latency for calls in done for latency in calls.latencies], time.perf_counter() - started)


def histogram(latencies: Sequence[float]) -> list[Bucket]:
    """Buckets of equal ratio from the quickest to the slowest call, empty ones between them included.

    As fine as fits in twenty.
    """
    for every in (1, 2, 5, 10):
        edges = _edges(min(latencies), max(latencies), every)
        if len(edges) - 1 <= _MAX_BUCKETS:
            break
    return [
        Bucket(low, high, sum(low <= latency < high for latency in latencies))
        for low, high in itertools.pairwise(edges)
    ]


def _edges(low: float, high: float, every: int) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    edges = [step * 10.0**power for power in powers for step in _STEPS[::every]]
    first = max(index for index, edge in enumerate(edges) if edge <= low)
    last = min(index for index, edge in enumerate(edges) if edge > high)
    return edges[first : last + 1]
