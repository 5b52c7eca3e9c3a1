"""The few figures that the README shows, between two comments that say where they come from."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.contenders import ALL, GAIA
from benchmarks.figures import spread
from benchmarks.markdown import table
from benchmarks.results import Run
from benchmarks.words import amount

__all__ = ["update", "with_figures"]

_COLUMNS = {
    "a call of 64 B": "latency: 64 B, two cores: p50",
    "32 callers": "throughput: 1 server, two cores: 32 callers",
    "processor time": "processor time: of one call: 64 B, two cores",
    "memory": "footprint: memory: 1 server",
    "after `kill -9`": "recovery: after kill -9: next good answer",
}
_BEGIN = "<!-- benchmarks: written by `python -m benchmarks --update-docs` -->"
_END = "<!-- end of benchmarks -->"


def update(run: Run, file: Path) -> None:
    """Put the run's figures where `file` has the two comments. Raises ValueError if it has not."""
    file.write_text(with_figures(run, file.read_text(encoding="utf-8")), encoding="utf-8")


def with_figures(run: Run, text: str) -> str:
    """`text` with the figures of `run` between the comments. Raises ValueError if there are none."""
    block = "\n".join((_BEGIN, "", *table([["", *_COLUMNS], *_lines(run)]), "", _END))
    changed, count = re.subn(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"expected one {_BEGIN} … {_END}, found {count}")
    return changed


def _lines(run: Run) -> list[list[str]]:
    lines = []
    for contender in ALL:
        if any(contender.key in row.values for row in run.rows):
            words = [contender.title, *(_cell(run, key, contender.key) for key in _COLUMNS.values())]
            lines.append([f"**{word}**" for word in words] if contender is GAIA else words)
    return lines


def _cell(run: Run, key: str, contender: str) -> str:
    row = run.find(key)
    if row is not None and row.values.get(contender):
        return amount(spread(row.values[contender]).median, row.unit)
    return "never" if contender in run.failures.get(key.split(":", maxsplit=1)[0], {}) else "not measured"
