"""Writes the results as a page of the documentation: the method, a table and a plot of each measure, and the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import figures
from benchmarks.contenders import FRAMEWORKS, GAIA, GATEWAY, PLACED, PLACED_BY_RAY, SHOWN, floor_among
from benchmarks.figures import amount_with_spread, ratio
from benchmarks.gate import Finding, judge
from benchmarks.plots import plot
from benchmarks.results import Row, Run

_OURS = {
    *(each.key for each in (GAIA, GATEWAY, PLACED, PLACED_BY_RAY)),
    *(each.key for each in FRAMEWORKS if each.arguments[-1] == "adapter"),
}
"""What stands out in tables."""


class _Words(NamedTuple):
    heading: str
    text: str
    by_column: bool = False
    """Whether the table has a line for each column and a column for each contender, and no plot."""


_SECTIONS = {
    "latency": _Words(
        "Added latency",
        "Sequential calls of a tool that returns its text. The server is written in C, and its own time is negligible. "
        "*Two cores*: the client is bound to one core, its server to the other; all figures include the cost of waking "
        "the other core. *One core*: both share one core, which compares the code paths. A percentile is that of one "
        "round.",
    ),
    "processor time": _Words(
        "Processor time", "The processor time of the client's process, user and system together, in all of its threads."
    ),
    "throughput": _Words(
        "Calls per second",
        "The number of callers in the column, each in a thread of its own (a task of its own if the client is "
        "asynchronous), make calls of 64 B as fast as they are answered. The raw pipe writes that many requests at "
        "once and reads that many answers with one thread, which is the most that one pipe carries from Python.",
    ),
    "http": _Words(
        "Streamable HTTP",
        "The same calls over HTTP/1.1 without TLS, to a server written in C that answers with JSON or with an event "
        "stream. The raw socket is the floor: it writes a ready-made request and reads the answer without parsing it. "
        "*http.client* is that of the standard library with a ready-made body. Each of many callers of the raw "
        "socket is a connection of its own that one thread writes to and reads from.",
    ),
    "asyncio": _Words(
        "asyncio",
        "Calls that are awaited one after the other, in a program with nothing else on its event loop, beside the same "
        "calls from synchronous code; and a thousand tasks that each call again as soon as they have an answer. "
        "*Traced*: each call has a span, which OpenTelemetry's batch processor gets, and whose exporter discards it.",
    ),
    "tracing": _Words(
        "Tracing",
        "A program without a tracer, one whose sampler drops all traces, and one that records a span of every call and "
        "passes it to OpenTelemetry's batch processor, whose exporter discards it. Spans record a masked and shortened "
        "version of arguments and results, or nothing of them, or everything. *Metrics only* is a program with a meter "
        "and no tracer. The *span of OpenTelemetry alone* is `start_span` and `end`, with the attributes that gaia-mcp "
        "records of such a call by default; it is the floor of what tracing adds. *Around a call*, the same is begun "
        "before and ended after a call of gaia-mcp without a tracer, where it takes longer than in a loop.",
    ),
    "steps": _Words(
        "A call step by step",
        "What each part of a call adds to its p50: the differences between clients of which each does one thing more. "
        "Client and server share one core, so that a difference is what the code costs, and not the waking of another "
        "core. First come the raw pipe or the raw socket; then these with JSON that is encoded and decoded; then the "
        "pipe with a thread that reads; then gaia-mcp's transport without a manager; then calls through the manager, "
        "without tracing and with it. A step that costs next to nothing can come out negative.",
        by_column=True,
    ),
    "start": _Words("Start", "A new process each time, with its bytecode and files in the system's cache."),
    "footprint": _Words(
        "Footprint",
        "The client's process, servers not included, after one call. Memory is the resident set. Its peak is the "
        "largest one that there was in a few calls of one size.",
    ),
    "start and end": _Words(
        "Start and end of many",
        "200 servers in one program: until all of them are ready, and until all have ended when the program is done "
        "with them.",
    ),
    "recovery": _Words(
        "Recovery",
        "The server is killed, and a program calls the client repeatedly, without any recovery code of its own; at the "
        "first good answer the server is killed again. A call made in the meantime waits for the new server. The raw "
        "pipe does not recover: its figure is what a server of this kind needs for its start, its handshake and an "
        "answer. With a stand-by a second process is ready when the first is lost; after the second kill there may be "
        "none yet.",
    ),
    "adapters": _Words(
        "Agent frameworks",
        "A tool of a server, called as the framework's agents call it: from the framework's own MCP client, and from "
        "gaia-mcp through its [adapter](adapters/index.md), in environments with the same packages. "
        "Frameworks differ in how much they do around a call. The server is killed between two calls, and the tool is "
        "called repeatedly, without any recovery code; at the first good answer the server is killed again. The second "
        "restart of a supervised server in a row waits for its backoff.",
    ),
    "gateway": _Words(
        "Gateway",
        "Clients of the handshake era before gateways of which each has a server over stdio behind it, written in C "
        "and of the same era. One raw client calls all of them: it writes a ready-made request, and of the answer it "
        "looks at the id and the text. The floor is what a gateway would take that costs nothing: this client's "
        "exchange with a server in C over HTTP, and an exchange through a raw pipe, added up; for calls per second "
        "it is the server over HTTP alone. The system places the processes, so figures jump with what it costs to "
        "wake a core; on *one core* they follow the code. Each session has one call under way. *Traced*: with a "
        "tracer that records every call and discards it. *With clients, limits and audit*: each call shows a token, "
        "passes limits of its client, the server and the tool, and has a line in a file. Processor time is that of the "
        "gateway's processes, and memory what is resident of them, both without the server.",
    ),
    "gateway, stateless clients": _Words(
        "Gateway, stateless clients",
        "The same with clients of revision 2026-07-28, before the same server of the handshake era. A session is a "
        "connection here.",
    ),
    "gateway, runaway client": _Words(
        "Gateway, a runaway client",
        "A client calls one call after the other: alone, and while another client calls in each of 32 sessions as soon "
        "as it has an answer. The limits of that one are 4 calls at once and 200 per second; what is above waits at "
        "the gateway.",
    ),
    "gateway, server killed": _Words(
        "Gateway, a server is killed",
        "The server is killed with `kill -9` while nothing is under way, and a client calls repeatedly in the session "
        "that it has. The floor is what the server needs for its start, its handshake and an answer.",
    ),
    "gateway, server killed with calls": _Words(
        "Gateway, a server is killed with calls",
        "The server has a call of each of 32 sessions and has answered none when it is killed with `kill -9`. Its tool "
        "is not marked as safe to repeat, so each client has to be told. The second table counts the answers that say "
        "whether the server may have acted.",
    ),
    "gateway, many agents": _Words(
        "Gateway, many agents",
        "Agents that use the same servers, small ones in Python: through one gateway, or each with a client and "
        "servers of its own. The agents' own processes are not counted. Of pages that processes share, each counts "
        "its part.",
    ),
    "placement": _Words(
        "Placement",
        "Servers that an [engine](cluster.md) places: by `process` on this machine, and by `ray` on a Ray cluster on "
        "this machine. A call goes over HTTP to the host, which is a gateway with one server. In the same process and "
        "the same rounds are calls of a local server and of a bare actor of Ray's that returns what it was given; the "
        "actor is the floor. A call of 1 MiB is answered with as much. Processor time is that of the client's process "
        "and of the host's or the actor's, without the server and without Ray's own. Memory and threads are those of "
        "the host, without the server and its guard process. After a kill, the floor is what the server "
        "needs for its start, its handshake and an answer. A node is lost when all of its processes are killed at "
        "once; the bare actor was on it, too. Ten programs share one server by its name, and each makes calls of a "
        "tool that sleeps for 50 ms and tells of its progress. Replicas have a server with one thread each, and 4 "
        "callers each.",
    ),
    "replicas": _Words(
        "Replicas",
        "A server with one thread, in several replicas on this machine, with 4 callers each. Its tool sleeps for "
        "100 ms, or computes in Python.",
    ),
    "sandbox": _Words(
        "Sandbox",
        "Servers in the default sandbox, and without one. This is the first start in a process, which also tries "
        "whether bubblewrap works.",
    ),
}

_INTRODUCTION = """\
# Benchmarks

What gaia-mcp costs, compared with a raw pipe and with other Python clients of MCP servers. Each call goes through the
whole client: the manager, the tool filter, deadlines, statistics and supervision; tracing is off where nothing else is
said.

Contenders take turns in short rounds, so that other load on the machine affects all of them. Each figure is the median
of the rounds, with the range of the middle half of them in brackets; "2.00x" means twice the figure of the floor, round
by round; the floor is the raw pipe where nothing else is said. Every answer is checked. Each client runs in a process
and a virtual environment of its own."""

_GATE = """\
## The gate

The limits that `python -m benchmarks --check` checks. Rows in which a peer is ahead are marked, with the reason.
"""


def write(run: Run, folder: Path) -> None:
    """Write ``benchmarks.md``, ``benchmarks.json`` and the plots; those of an older run go."""
    run.save(folder / "benchmarks.json")
    for old in folder.glob("benchmarks-*.svg"):
        old.unlink()
    for rows in filter(_has_plot, run.tables().values()):
        (folder / _plot_name(rows)).write_text(plot(rows), encoding="utf-8")
    (folder / "benchmarks.md").write_text(text(run), encoding="utf-8")


def text(run: Run) -> str:
    """The page in Markdown."""
    return "\n".join(_page(run)) + "\n"


def table(rows: list[Row]) -> list[str]:
    """One table in Markdown: a line for each contender, with how many times the floor each figure is."""
    lines = [["", *(row.column for row in rows)]]
    lines.extend(
        [_bold(contender.title, contender.key), *(_cell(row, contender.key) for row in rows)]
        for contender in SHOWN
        if any(contender.key in row.values for row in rows)
    )
    return figures.table(lines if _has_plot(rows) else [list(line) for line in zip(*lines, strict=True)])


def gate_table(findings: list[Finding]) -> list[str]:
    lines = [["", "found", "wanted", ""]]
    lines.extend([finding.what, finding.found, finding.wanted, _verdict(finding)] for finding in findings)
    return figures.table(lines)


def _page(run: Run) -> Iterator[str]:
    yield "<!-- Written by `python -m benchmarks --update-docs`; change benchmarks/page.py instead. -->\n"
    yield _INTRODUCTION
    yield f"\n<!-- example not-run: takes a quarter of an hour -->\n```console\n$ {run.command}\n```\n"
    machine = ", ".join(f"{topic}: {words}" for topic, words in run.machine.items())
    yield f"{run.date}, {run.seconds / 60:.0f} minutes, on {machine}.\n"
    versions = [[_title(key), version] for key, version in run.versions.items()]
    yield from (*figures.table([["client", "version"], *versions]), "")
    yield from (f"- {_title(key)} is missing: {why}\n" for key, why in run.absent.items())
    section = ""
    for (name, title), rows in run.tables().items():
        if name != section:
            section = name
            yield f"## {_SECTIONS[name].heading}\n\n{_SECTIONS[name].text}\n"
            yield from (f"- {_title(key)} is out: {why}\n" for key, why in run.failures.get(name, {}).items())
        yield from (f"### {title[0].upper()}{title[1:]}\n", *table(rows), "")
        if _has_plot(rows):
            yield f"![{title}]({_plot_name(rows)})\n"
    for name in [name for name in run.failures if not any(row.section == name for row in run.rows)]:
        yield f"## {_SECTIONS[name].heading}\n"
        yield from (f"- {_title(key)} is out: {why}\n" for key, why in run.failures[name].items())
    findings = judge(run)
    yield from (_GATE, *gate_table(findings), "")
    reasons = {finding.explanation or finding.cause for finding in findings}
    yield from (f"- {reason}" for reason in sorted(reasons - {""}))


def _cell(row: Row, contender: str) -> str:
    values = row.values.get(contender)
    if not values:
        return "–"  # noqa: RUF001
    words = amount_with_spread(values, row.unit)
    floor = floor_among(row.values)
    if floor is not None and contender != floor.key and min(row.values[floor.key]) > 0:
        words += f", {ratio(values, row.values[floor.key]):.2f}x"
    return _bold(words, contender)


def _bold(words: str, contender: str) -> str:
    return f"**{words}**" if contender in _OURS else words


def _has_plot(rows: list[Row]) -> bool:
    words = _SECTIONS.get(rows[0].section)
    return words is None or not words.by_column


def _verdict(finding: Finding) -> str:
    if finding.ok:
        return "yes"
    return "behind, see below" if finding.explanation else "**no**"


def _title(key: str) -> str:
    return next((contender.title for contender in SHOWN if contender.key == key), key)


def _plot_name(rows: list[Row]) -> str:
    return f"benchmarks-{re.sub('[^a-z0-9]+', '-', f'{rows[0].section} {rows[0].table}'.lower())}.svg"
