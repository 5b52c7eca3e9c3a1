"""The few figures that the README shows, between two comments that say where they come from."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.contenders import ALL, FLOOR, GAIA, RAW_SOCKET, floor_among
from benchmarks.figures import amount, spread, table
from benchmarks.results import Run

_COLUMNS = {
    "a call of 64 B": "latency: 64 B, two cores: p50",
    "over HTTP": "http: JSON answers, 64 B, two cores: p50",
    "32 callers": "throughput: 1 server, two cores: 32 callers",
    "processor time": "processor time: of one call: 64 B, two cores",
    "memory": "footprint: memory: 1 server",
    "after `kill -9`": "recovery: after kill -9: next good answer",
}
_HTTP, _RECOVERY = "http:", "recovery"
_BEGIN = "<!-- benchmarks: written by `python -m benchmarks --update-docs` -->"
_END = "<!-- end of benchmarks -->"


def update(run: Run, file: Path) -> None:
    """Put the run's figures where `file` has the two comments. Raises ValueError if it has not."""
    file.write_text(with_figures(run, file.read_text(encoding="utf-8")), encoding="utf-8")


def with_figures(run: Run, text: str) -> str:
    """`text` with the figures of `run` between the comments. Raises ValueError if there are none."""
    columns = {title: key for title, key in _COLUMNS.items() if run.find(key) is not None}
    block = "\n".join((_BEGIN, "", *table([["", *columns], *_lines(run, list(columns.values()))]), "", _END))
    changed, count = re.subn(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"expected one {_BEGIN} … {_END}, found {count}")
    return changed


def _lines(run: Run, keys: list[str]) -> list[list[str]]:
    lines = []
    for contender in ALL:
        if any(contender.key in row.values for row in run.rows):
            over_http = any(key.startswith(_HTTP) for key in keys)
            title = f"{FLOOR.title}, {RAW_SOCKET.title}" if contender is FLOOR and over_http else contender.title
            words = [title, *(_cell(run, key, contender.key) for key in keys)]
            lines.append([f"**{word}**" for word in words] if contender is GAIA else words)
    return lines


def _cell(run: Run, key: str, contender: str) -> str:
    row = run.find(key)
    floor = None if row is None else floor_among(row.values)
    if contender == FLOOR.key and floor is not None:
        contender = floor.key
    if row is not None and row.values.get(contender):
        return amount(spread(row.values[contender]).median, row.unit)
    never = key.startswith(_RECOVERY) and contender in run.failures.get(_RECOVERY, {})
    return "never" if never else "not measured"
