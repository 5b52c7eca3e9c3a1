"""Tables, and the steps of the demo. Text from servers is cleaned, and is never markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gaia.cli import terminal
from gaia.cli.terminal import text
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from gaia.mcp.doctor import Check
    from gaia.mcp.supervision.status import ServerStatus

_STATE_STYLES = {"ready": "green", "enabled": "green", "failed": "red", "invalid": "red", "disabled": "dim"}

_VERDICTS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skipped": ("-", "dim")}
_DIFFERENCE_STYLES = {"@": "bold", "-": "red", "+": "green"}

_SPARKLINE_WIDTH = 12


def plain_table(*columns: str, right: Sequence[str] = (), rows: Iterable[Iterable[str | Text]] = ()) -> Table:
    """A table without lines. Long words are folded. Cells may hold untrusted text."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for column in columns:
        # Folding breaks long words, such as paths, and never cuts them.
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def server_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    cells = (
        (one_line(row["name"]), _state_of(row), _or_nothing(row["tools"]), one_line(_or_nothing(row["source"])))
        for row in rows
    )
    return plain_table("name", "state", "tools", "source", right=("tools",), rows=cells)


def _state_of(row: Mapping[str, Any]) -> Text:
    waited = row.get("waited")
    state = row["state"] if waited is None else f"{row['state']} after {waited:g} s"
    state += f" on node {one_line(row['node'])}" if row.get("node") else ""
    state += ", in a sandbox" if row.get("sandbox") else ""
    state += ", with a stand-by" if row.get("standby") else ""
    return text(state, _style_of(row["state"]))


def difference_text(lines: Iterable[str]) -> Text:
    from rich.text import Text

    return Text("\n").join(text(line, _DIFFERENCE_STYLES.get(line[:1], "")) for line in lines)


_FIGURES = ("generation", "restarts", "in flight", "queued", "p50", "p95")
_COLUMNS = ("name", "state", "node", *_FIGURES, "round trips", "last error")

_DISPENSABLE = ("round trips", "p50", "queued", "generation", "in flight", "node", "p95", "restarts")

_MIN_ERROR = 30
"""Columns reserved for the last error, if it is that long."""


def status_table(
    looks: Sequence[tuple[ServerStatus, Sequence[float | None]]],
    *,
    width: int,
    live: bool = False,
    ascii_only: bool = False,
) -> Table:
    """A table of servers: state, activity, latency and last error.

    The last error always has room within `width` columns, and figures that do not fit beside it are left out. `looks`
    has the last round trips of each server in seconds. A `live` table draws them, and cuts each server's text to one
    line.
    """
    rows = [_cells(status, sparkline(round_trips, ascii_only=ascii_only)) for status, round_trips in looks]
    # Most programs place no servers on a cluster.
    is_placed = any(status.placement is not None for status, _ in looks)
    names = [name for name in _COLUMNS if {"round trips": live, "node": is_placed}.get(name, True)]
    widths = {name: 2 + max(len(name), *(row[name].cell_len for row in rows), 0) for name in names}
    room = width + max(widths["last error"] - _MIN_ERROR, 0)
    for name in _DISPENSABLE:
        if name in names and sum(widths[kept] for kept in names) > room:
            names.remove(name)
    table = plain_table(*names, right=_FIGURES, rows=([row[name] for name in names] for row in rows))
    if live:
        table.expand = True
        table.columns[-1].ratio = 1
        for column in table.columns:
            column.no_wrap = True
            if column.header in ("name", "last error"):
                column.overflow = "ellipsis"
    return table


def _cells(status: ServerStatus, sparks: str) -> dict[str, Text]:
    figures = (status.generation, status.restarts, status.in_flight, status.queued)
    latencies = (milliseconds(status.latency_p50), milliseconds(status.latency_p95))
    nodes = {one.placement.node_id for one in status.replicas if one.placement is not None}
    node = None if status.placement is None else status.placement.node
    return {
        "name": text(one_line(status.name)),
        "state": text(status.state.value, _style_of(status.state.value)),
        "node": text(
            f"{len(status.replicas)} replicas on {len(nodes)} nodes" if len(nodes) > 1 else one_line(node or "-")
        ),
        **dict(zip(_FIGURES, map(text, (*figures, *latencies)), strict=True)),
        "round trips": text(sparks.ljust(_SPARKLINE_WIDTH), "cyan"),
        "last error": text(one_line(_or_nothing(status.last_error))),
    }


def sparkline(values: Sequence[float | None], *, ascii_only: bool = False) -> str:
    """The last values as a row of bars, scaled to the highest value. A missing value is a cross."""
    bars, cross = ("_.-=*#", "x") if ascii_only else ("▁▂▃▄▅▆▇█", "✗")
    shown = values[-_SPARKLINE_WIDTH:]
    most = max((value for value in shown if value is not None), default=0.0)
    return "".join(
        cross if value is None else bars[min(int(value / most * len(bars)), len(bars) - 1) if most else 0]
        for value in shown
    )


def step_table(steps: Iterable[Mapping[str, Any]]) -> Table:
    rows = (
        (_mark(ok=step["ok"]), step["name"], milliseconds(step["seconds"]), one_line(step["detail"])) for step in steps
    )
    return plain_table("", "step", "time", "", right=("time",), rows=rows)


def check_table(checks: Sequence[Check]) -> Table:
    from gaia.mcp.doctor.examination import NOT_REACHED

    rows: list[tuple[str | Text, ...]] = []
    for check in checks:
        mark, style = _VERDICTS[check.verdict]
        quiet = "dim" if check.verdict == "skipped" else ""
        unreached = check.detail == NOT_REACHED
        detail = "this and what follows: not reached" if unreached else check.detail.rstrip()
        seconds = "" if check.seconds is None else milliseconds(check.seconds)
        rows.append((text(mark, style), text(check.name, quiet), seconds, text(detail, quiet)))
        if check.remedy is not None:
            rows.append(("", "", "", text(f"→ {check.remedy}", style)))
        if unreached:
            break
    table = plain_table("", "check", "time", "", right=("time",), rows=rows)
    table.show_header = False
    return table


def latency_table(rows: Iterable[tuple[str, Sequence[float], float]]) -> Table:
    columns = ("p50", "p95", "p99", "longest", "calls/s")
    cells = ((name, *map(microseconds, latencies), f"{rate:,.0f}") for name, latencies, rate in rows)
    return plain_table("", *columns, right=columns, rows=cells)


def bar(share: float, width: int) -> str:
    """A bar of up to `width` columns, in steps of an eighth. A share above 0 has at least one eighth."""
    eighths = max(round(share * width * 8), 1) if share > 0 else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2f} ms"


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.0009995 else milliseconds(seconds)


def _style_of(state: str) -> str:
    return _STATE_STYLES.get(state, "yellow")


def _or_nothing(value: object) -> str:
    return "-" if value is None else str(value)


def _mark(*, ok: bool, weight: str = "") -> Text:
    return text("✓" if ok else "✗", f"{weight} {'green' if ok else 'red'}".strip())


_GONE_SECONDS = 5.0


class Step(NamedTuple):
    name: str
    ok: bool
    lines: list[str]
    facts: dict[str, Any]


def show_step(step: Step) -> None:
    from rich.padding import Padding
    from rich.text import Text

    title, *rest = step.lines
    terminal.show(Text.assemble(_mark(ok=step.ok, weight="bold"), " ", text(title, "bold")))
    for line in rest:
        # Padding also indents lines that wrap.
        terminal.show(Padding(text(line, "dim" if line.startswith("span ") else ""), (0, 0, 0, 4), expand=False))


def nothing_left(started: set[Any]) -> Step:
    """Whether all processes of the demo have ended: the servers of all generations, and their guard."""
    import psutil

    _, alive = psutil.wait_procs(started, timeout=_GONE_SECONDS)
    left = sorted(process.pid for process in alive)
    pids = sorted(process.pid for process in started)
    verdict = f"still running: {left}" if left else f"none of the {len(pids)} processes is left ({list_text(pids)})"
    return Step("stop", not left, ["Stop", verdict], {"pids": pids, "left": left})


def list_text(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
