"""`gaia mcp bench`: how quick the calls of a tool are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gaia.cli import arguments, terminal, time_limit
from gaia.cli.command_errors import USAGE, CommandFailed
from gaia.cli.options import CallTimeoutOption, Options, with_options
from gaia.cli.servers import complete_name, connected, waiting_for

if TYPE_CHECKING:
    from gaia.cli.latency import Calls, Overhead
    from gaia.mcp.client import MCPClient

_DEMO_ARGUMENTS = {"text": "x" * 64}
_WARM_UP = 10
_BAR_WIDTH = 50
_SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}
_EXAMPLE = """Example: gaia mcp bench --server time --tool get_current_time --arguments '{"timezone": "UTC"}'"""


class _Report(NamedTuple):
    alone: Calls
    """One call after the other."""
    crowd: Calls | None
    """By several callers at once."""
    overhead: Overhead | None
    """Next to a bare pipe."""


@with_options("trust", "config", "as_json", "debug")
def bench(
    options: Options,
    server: Annotated[
        str | None,
        typer.Option("--server", help="A configured server; by default the demo server.", autocompletion=complete_name),
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="The tool, by the server's own name for it.")] = None,
    given: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="What it is called with: a JSON object, or @FILE with one."),
    ] = None,
    calls: Annotated[int, typer.Option("--calls", min=1, help="So many calls at most, each way.")] = 1000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="No call begins later than this.")] = 5.0,
    callers: Annotated[int, typer.Option("--callers", min=1, max=256, help="How many call at once.")] = 8,
    timeout: CallTimeoutOption = None,
) -> None:
    """Measure how quick the calls of a tool are: one after the other, and by several callers at once.

    The tool is really called, up to two thousand times by default: choose one that does no harm. Without --server it is
    the demo server's echo, which is also called through a bare pipe to show what supervision costs. The first call that
    fails ends it, with exit status 1.
    """
    if (server is None) != (tool is None):
        raise CommandFailed("--server and --tool go together", exit_code=USAGE, hint=_EXAMPLE, error_type="usage")
    if server is None and given is not None:
        raise CommandFailed(
            "--arguments: for a tool that --server and --tool name", exit_code=USAGE, hint=_EXAMPLE, error_type="usage"
        )
    wanted = _DEMO_ARGUMENTS if server is None else _object(given or "{}")
    name, tool = server or "demo", tool or "echo"
    time_limit.begin(timeout, options.started)
    with _client(server, options) as (client, raw_call), waiting_for(f"Calling {tool} of {name}", options):
        # From here on it limits each call.
        time_limit.end()
        report = _measure(_checked(client, tool, wanted, timeout), raw_call, calls, seconds, callers)
    if options.json:
        terminal.print_json({"server": name, "tool": tool, "arguments": wanted, "callers": callers, **_facts(report)})
    else:
        _show(f"{tool} of {name}", report, callers)


def _object(given: str) -> dict[str, Any]:
    if not given.lstrip().startswith(("{", "@")):
        raise CommandFailed(
            f"--arguments: expected a JSON object, got {given!r}", exit_code=USAGE, hint=_EXAMPLE, error_type="usage"
        )
    return dict(arguments.parse([given]))


@contextlib.contextmanager
def _client(server: str | None, options: Options) -> Iterator[tuple[MCPClient, Callable[[], object] | None]]:
    """A connected client, and for the demo server the same call without one."""
    if server is not None:
        with connected(server, options) as client:
            yield client, None
        return
    from gaia.cli.latency import RawPipe
    from gaia.mcp import demo_server
    from gaia.mcp.client import MCPClient

    argv = [sys.executable, "-I", str(demo_server.__file__)]
    own = MCPClient.from_config("demo", {"command": argv[0], "args": argv[1:]}, debug=options.debug)
    with own, RawPipe(argv, "echo", _DEMO_ARGUMENTS) as raw:
        yield own, raw.call


def _checked(client: MCPClient, tool: str, wanted: dict[str, Any], timeout: float | None) -> Callable[[], object]:
    """One call, which raises CommandFailed unless it succeeds: how quick errors are says nothing about the tool."""

    def call() -> None:
        result = client.call_tool(tool, wanted, timeout=timeout)
        if result.is_error:
            what = "a call failed" if "error_type" in result else "the tool reported an error"
            raise CommandFailed(f"{what}: {result.error}", error_type=result.get("error_type", "tool_error"))

    return call


def _measure(
    call: Callable[[], object], raw_call: Callable[[], object] | None, calls: int, seconds: float, callers: int
) -> _Report:
    from gaia.cli.latency import measure, one_by_one, together

    one_by_one(call, min(_WARM_UP, calls), seconds)
    return _Report(
        alone=one_by_one(call, calls, seconds),
        crowd=together(call, callers, calls, seconds) if callers > 1 else None,
        overhead=None if raw_call is None else measure(raw_call, call),
    )


def _facts(report: _Report) -> dict[str, Any]:
    from gaia.cli.latency import histogram

    overhead = report.overhead
    return {
        "alone": _figures(report.alone),
        "together": None if report.crowd is None else _figures(report.crowd),
        "histogram": [bucket._asdict() for bucket in histogram(report.alone.latencies)],
        "raw_pipe": None
        if overhead is None
        else {
            "calls": overhead.calls,
            **overhead.raw._asdict(),
            "supervised": overhead.managed._asdict(),
            "ratio": overhead.ratio,
        },
    }


def _figures(calls: Calls) -> dict[str, Any]:
    latencies = {name: calls.percentile(share) for name, share in _SHARES.items()}
    return {"calls": len(calls.latencies), "seconds": calls.seconds, "calls_per_second": calls.rate, **latencies}


def _show(title: str, report: _Report, callers: int) -> None:
    from gaia.cli.latency import histogram
    from gaia.cli.rendering import bar, latency_table, microseconds

    rows = [("one caller", report.alone)]
    if report.crowd is not None:
        rows.append((f"{callers} callers", report.crowd))
    terminal.say(f"{title}: {', '.join(f'{len(calls.latencies)} by {name}' for name, calls in rows)}")
    figures = [(name, [calls.percentile(share) for share in _SHARES.values()], calls.rate) for name, calls in rows]
    terminal.show(latency_table(figures))
    buckets = histogram(report.alone.latencies)
    most = max(bucket.calls for bucket in buckets)
    edges = [microseconds(bucket.low) for bucket in buckets]
    width = max(map(len, edges))
    terminal.show()
    terminal.say("One caller, calls by how long they took, from:")
    for edge, bucket in zip(edges, buckets, strict=True):
        terminal.say(f"{edge:>{width}}  {bar(bucket.calls / most, _BAR_WIDTH)} {bucket.calls or ''}")
    if (overhead := report.overhead) is not None:
        terminal.show()
        terminal.say(f"Supervised next to a bare pipe, medians of {overhead.calls} calls each, taken in turns:")
        terminal.say(f"bare pipe   {microseconds(overhead.raw.median)}")
        terminal.say(
            f"supervised  {microseconds(overhead.managed.median)}, which is {microseconds(overhead.added)} more, or "
            f"{overhead.ratio:.2f} times the bare pipe"
        )
