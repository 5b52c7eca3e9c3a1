"""The limits for gaia-mcp: relative to the raw pipe, absolute, and ahead of every peer in every row."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.contenders import FLOOR, GAIA, PEERS
from benchmarks.figures import ratio
from benchmarks.results import Row, Run
from benchmarks.words import amount

__all__ = ["EXPLAINED", "Finding", "judge"]

_MAX_OVERHEAD = 0.050
"""Seconds that the client may add to the 99th percentile of calls of any size."""

_MIB = 1024 * 1024

_MAX_TIMES_THE_FLOOR = {
    "latency: 64 B, two cores: p50": 2.0,
    "latency: 64 B, two cores: p99": 4.0,
    "latency: 64 B, one core: p50": 8.0,
    "latency: 1 MiB, two cores: p50": 1.5,
}
_AT_MOST = {
    "footprint: memory: 1 server": 34 * _MIB,
    "footprint: memory: 50 servers": 45 * _MIB,
    "start: cold start: import": 0.150,
}
_AT_LEAST = {"throughput: 1 server, two cores: 32 callers": 20_000}

EXPLAINED = {
    "footprint: threads": (
        "Each server has threads of its own that wait for its pipes, its end and its timers, so that a failing server "
        "delays no other and no event loop is needed. A waiting thread costs memory, which is in the row of that name, "
        "and no processor time."
    ),
    "footprint: descriptors": (
        "Each server's standard error goes through a pipe, so that its end is part of the error when the server fails; "
        "most peers let servers write to the terminal instead."
    ),
    "footprint: memory of its helpers": (
        "A small guard process, and one forked from it for each server, end all that servers started, also when the "
        "program is killed. No peer has that. Pages that processes share count in parts."
    ),
}
"""Rows in which peers may be ahead, by the beginning of their keys, and why."""

_CAUSES = {
    "latency: 64 B, two cores: p50": (
        "A call wakes three threads one after the other (the server's, the reader, the caller) where the raw pipe "
        "wakes two, so the ratio on two cores follows what a wake-up costs on the machine."
    ),
    "throughput: 1 server, two cores: 32 callers": (
        "With 32 threads that wait for answers, a call takes more than two switches of threads, most of them to hand "
        "over the interpreter's lock. They cost over a third of the processor time, so the figure follows the machine."
    ),
}
"""What a limit depends on that some machines miss. It counts as missed."""


class Finding(NamedTuple):
    """One thing that was checked."""

    what: str
    found: str
    wanted: str
    ok: bool
    explanation: str = ""
    """The reason of a miss that is accepted."""
    cause: str = ""
    """The reason of a miss that is known and not accepted."""

    @property
    def accepted(self) -> bool:
        return self.ok or bool(self.explanation)


def judge(run: Run) -> list[Finding]:
    """All findings about the rows of a run; the gate passes if all of them are accepted."""
    return [*_overheads(run), *_bars(run), *_rivalries(run)]


def _overheads(run: Run) -> Iterator[Finding]:
    for row in run.rows:
        if row.section == "latency" and row.column == "p99" and {GAIA.key, FLOOR.key} <= row.values.keys():
            pairs = zip(row.values[GAIA.key], row.values[FLOOR.key], strict=False)
            worst = max(gaia - floor for gaia, floor in pairs)
            found, wanted = amount(worst, "seconds"), f"under {amount(_MAX_OVERHEAD, 'seconds')}"
            yield Finding(f"{row.key}, added in the worst round", found, wanted, worst < _MAX_OVERHEAD)


def _bars(run: Run) -> Iterator[Finding]:
    for key, most in _MAX_TIMES_THE_FLOOR.items():
        row = run.find(key)
        if row is not None and {GAIA.key, FLOOR.key} <= row.values.keys():
            times = ratio(row.values[GAIA.key], row.values[FLOOR.key])
            yield _bar(key, f"{times:.2f} times the raw pipe", f"at most {most:g} times", times <= most)
    for key, limit, sign in [*((*item, 1) for item in _AT_MOST.items()), *((*item, -1) for item in _AT_LEAST.items())]:
        row = run.find(key)
        if row is not None and GAIA.key in row.values:
            figure = statistics.median(row.values[GAIA.key])
            wanted = f"at {'most' if sign > 0 else 'least'} {amount(limit, row.unit)}"
            yield _bar(key, amount(figure, row.unit), wanted, figure * sign <= limit * sign)


def _bar(key: str, found: str, wanted: str, ok: bool) -> Finding:
    return Finding(key, found, wanted, ok, cause="" if ok else _CAUSES.get(key, ""))


def _rivalries(run: Run) -> Iterator[Finding]:
    for row in run.rows:
        rivals = [peer for peer in PEERS if peer.key in row.values]
        if GAIA.key not in row.values or not rivals:
            continue
        times, best = max((_times_behind(row, peer.key), peer) for peer in rivals)
        explanation = next((why for key, why in EXPLAINED.items() if row.key.startswith(key)), "")
        found = f"{1 / times:.2f} times as good as {best.title}" if times > 0 else f"as good as {best.title}"
        yield Finding(row.key, found, "ahead of every peer", times < 1, explanation if times >= 1 else "")


def _times_behind(row: Row, peer: str) -> float:
    """Over 1 if the peer is better."""
    gaia, rival = row.values[GAIA.key], row.values[peer]
    if row.more_is_better:
        return ratio(rival, gaia)
    if statistics.median(rival) == 0:
        return float("inf") if statistics.median(gaia) > 0 else 1.0
    return ratio(gaia, rival)
